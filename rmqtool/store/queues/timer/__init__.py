"""Timer messages of 5.x: the wheel, its log, and what waits there. Reading only."""
