"""The timer of 5.x: wheel, timer log, checkpoint, and the messages they lead to."""
