"""A broker's recovery: planned, shown, and carried out."""
