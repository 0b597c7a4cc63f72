"""Data sets, where they are found and fetched, and how they are shared out among workers."""
