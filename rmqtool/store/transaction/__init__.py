"""Changes of a store as a whole: prepared aside, kept, applied, finished after a kill, undone."""
