"""How many local steps, which rates, and the evidence."""
