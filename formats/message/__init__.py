"""Commit-log records: read, written, their properties, bodies and ids."""
