"""Consumer groups: their progress, and setting their offsets."""
