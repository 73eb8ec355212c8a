"""Advice on findings that is safe for the store at hand."""
