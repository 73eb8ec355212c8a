"""Retries and dead letters."""
