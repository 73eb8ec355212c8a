"""The commit log by itself."""
