"""The integer arrays that compiled and plain code share, with the meaning of their columns."""
