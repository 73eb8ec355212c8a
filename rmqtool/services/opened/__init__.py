"""A store that is held open, and what its broker remembers."""
