"""Search for text in the messages of a store."""
