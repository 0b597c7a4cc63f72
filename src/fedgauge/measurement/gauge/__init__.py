"""The gauge: how many local steps a federation affords, measured on the federation itself."""
