"""Java classes that both files and bodies hold, each declared once."""
