"""The constants of a real federation, each with how far it may be trusted."""
