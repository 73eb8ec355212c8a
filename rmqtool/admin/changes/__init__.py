"""Changes of a live cluster: planned, kept in a journal, written, read back, and undone from the journal."""
