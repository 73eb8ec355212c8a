"""The files that keep consumer offsets."""
