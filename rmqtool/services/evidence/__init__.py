"""What may be shared with others when something is wrong with a store."""
