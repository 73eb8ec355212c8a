"""Commands that write messages."""
