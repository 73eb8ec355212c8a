"""The store engine: the only layer that opens files."""
