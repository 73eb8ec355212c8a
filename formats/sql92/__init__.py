"""SQL92 subscription filters."""
