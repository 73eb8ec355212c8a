"""The background services of a broker."""
