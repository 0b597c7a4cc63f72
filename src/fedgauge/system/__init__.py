"""What fedgauge needs from the system: files, signals, threads, notices, and functions found by name."""
