"""What a store directory is in its cluster, and what each writing command may do to it."""
