"""Runs on disk: writing a run's directory, reading it back, observers, and export to other tools."""
