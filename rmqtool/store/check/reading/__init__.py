"""Interpret all findings of a check together."""
