"""Data sets, where they are found and fetched, and how they are divided among workers."""
