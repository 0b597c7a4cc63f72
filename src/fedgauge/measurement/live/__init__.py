"""The live gauge: the efficiency of local steps, measured inside one run that changes their number in blocks."""
