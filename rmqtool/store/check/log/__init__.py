"""Check the commit log by itself."""
