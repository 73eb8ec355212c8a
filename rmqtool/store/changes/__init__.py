"""Changes to a store: prepared aside, applied as a whole, completed after a kill, and undone."""
