"""Every byte of a file by name."""
