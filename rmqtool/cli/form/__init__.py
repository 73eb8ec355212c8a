"""The form of what is shown: plain text, and tables of it."""
