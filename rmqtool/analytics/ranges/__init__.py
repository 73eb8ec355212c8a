"""Byte ranges of a commit log: how it is divided, where records begin in them, and how far a growing log can be read."""
