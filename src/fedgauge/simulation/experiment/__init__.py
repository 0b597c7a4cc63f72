"""Experiments: the TOML format, how one becomes a federation, sweeps, and jobs that run side by side."""
