"""Index files by themselves and against the commit log."""
