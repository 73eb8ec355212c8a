"""Listeners of push consumers: what they are given, what they answer, and how they are called."""
