"""Runs as tables that a git host shows."""
