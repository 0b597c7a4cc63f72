"""What fedgauge asks of the operating system: whole files, signals, threads, and functions found by name."""
