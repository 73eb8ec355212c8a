"""Commands that only a live cluster answers."""
