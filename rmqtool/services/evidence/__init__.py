"""What may leave the house when something is wrong with a store."""
