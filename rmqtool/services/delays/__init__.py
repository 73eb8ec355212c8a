"""Delayed messages: the levels, and delivery."""
