"""Locations of the files of a store, and the settings and release that determine them."""
