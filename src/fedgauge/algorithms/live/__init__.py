"""Local steps that are measured inside the run, and what is read from its losses."""
