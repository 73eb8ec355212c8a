"""The role of a store directory in its cluster, and what each writing command may do to it."""
