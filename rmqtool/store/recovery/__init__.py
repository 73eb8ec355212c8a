"""A broker's recovery: planned on paper, shown, and carried out."""
