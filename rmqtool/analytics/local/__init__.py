"""What lies on this machine meanwhile: caches, temporary directories, shared work."""
