"""What to do about findings, safe in this very store."""
