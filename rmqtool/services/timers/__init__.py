"""Timer messages of 5.x: what waits for its time, and its delivery."""
