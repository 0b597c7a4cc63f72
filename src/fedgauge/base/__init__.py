"""The vocabulary: errors, symbols, randomness, and what fedgauge needs from the system."""
