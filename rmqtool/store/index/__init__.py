"""Index files: read, and built or cut by recovery."""
