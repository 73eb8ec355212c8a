"""Local state: caches, temporary directories, shared work."""
