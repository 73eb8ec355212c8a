"""From a request to its handler, for the broker and the name server."""
