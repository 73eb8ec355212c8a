"""The terminal view of ``browse``."""
