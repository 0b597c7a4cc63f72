"""Published data sets for fedgauge: where their files are, whether they are the published ones, and what is in them."""
