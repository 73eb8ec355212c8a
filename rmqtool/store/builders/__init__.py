"""Make derived files of 5.x again from messages: those of the timer, and the logs of compacted topics."""
