"""Backups of a store: plain files, a manifest with checksums, and hard links to what did not change."""
