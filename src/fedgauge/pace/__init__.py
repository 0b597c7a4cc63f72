"""What a round costs, and how many local steps the next rounds take."""
