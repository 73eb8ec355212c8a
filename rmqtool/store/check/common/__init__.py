"""Shared by all checks: the store and the findings."""
