"""Read-only check of a whole store: every file by itself, then files against each other."""
