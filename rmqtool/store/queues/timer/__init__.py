"""Timer messages of 5.x: the wheel, its log, and the waiting messages."""
