"""Configuration files of a broker: JSON of its dialect, read tolerantly and written exactly."""
