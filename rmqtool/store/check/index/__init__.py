"""Check index files by themselves and against the commit log."""
