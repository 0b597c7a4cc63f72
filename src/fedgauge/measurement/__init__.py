"""The constants of a federation, measured on its own model and data."""
