"""Message bodies as people read them: decoded by a schema, or some of their fields."""
