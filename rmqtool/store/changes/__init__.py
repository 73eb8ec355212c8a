"""Changes of a store: planned aside, applied as a whole, finished after a kill, and undone."""
