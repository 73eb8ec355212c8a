"""Byte ranges of a commit log: how it is divided, where records begin, how far a growing log can be read."""
