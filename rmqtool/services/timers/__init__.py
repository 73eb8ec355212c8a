"""Timer messages of 5.x: waiting messages and their delivery."""
