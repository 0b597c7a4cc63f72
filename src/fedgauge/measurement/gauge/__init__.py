"""The gauge: how many local steps to take, measured on the federation itself."""
