"""Repairs that no broker does: rebuilding, removing expired files, mending config files."""
