"""Runs on disk: the directory that one is written to, reading it back, observers, and export to other tools."""
