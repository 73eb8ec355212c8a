"""Figures about a served store, for Prometheus and the terminal."""
