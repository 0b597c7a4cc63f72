"""Data sets, how they are divided among workers, and how workers' examples differ."""
