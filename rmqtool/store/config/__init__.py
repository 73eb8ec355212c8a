"""The JSON files below ``config/``, as a broker takes them."""
