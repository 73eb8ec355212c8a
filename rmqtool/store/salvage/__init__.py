"""Salvage what is left of a store that is beyond recovery."""
