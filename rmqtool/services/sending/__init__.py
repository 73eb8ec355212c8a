"""Preparing messages for a store."""
