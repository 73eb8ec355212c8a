"""Commit-log records: reading, writing, properties, bodies and ids."""
