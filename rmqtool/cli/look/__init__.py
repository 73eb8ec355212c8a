"""Commands that look at a store."""
