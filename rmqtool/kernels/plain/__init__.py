"""The kernel entry points in plain Python: the reference implementation, and the fallback without a library."""
