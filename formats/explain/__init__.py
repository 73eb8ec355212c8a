"""Name every byte of a file."""
