"""Commands that talk to a live cluster as a client."""
