"""Delayed messages: what waits in each level, and its delivery."""
