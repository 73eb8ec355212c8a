"""Findings about a live cluster."""
