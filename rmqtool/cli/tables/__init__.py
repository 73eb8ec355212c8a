"""Commands that see messages as tables."""
