"""Check the 5.x timer: wheel, timer log, checkpoint, and the messages they refer to."""
