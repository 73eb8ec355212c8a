"""The codes of findings, with their meaning and advice."""
