"""The JSON files below ``config/``, read as a broker reads them."""
