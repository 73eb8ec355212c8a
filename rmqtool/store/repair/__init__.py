"""Repairs that no broker does: rebuild, expiry, damaged config files."""
