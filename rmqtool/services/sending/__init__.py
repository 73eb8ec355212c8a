"""Messages on their way into a store."""
