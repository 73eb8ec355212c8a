"""Finding and loading the compiled library, and addresses of buffers."""
