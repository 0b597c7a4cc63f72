"""Results as they lie on disk, by kind, read back and made ready to be shown."""
