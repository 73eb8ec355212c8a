"""Finds and loads the compiled library, and hands out the addresses of buffers."""
