"""Byte ranges of a commit log: dividing it, finding record boundaries, and reading a log that is being written."""
