"""Consumer groups: how far they are, and how to move them."""
