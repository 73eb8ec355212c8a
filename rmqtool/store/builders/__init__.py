"""Rebuild derived files of 5.x from messages: those of the timer, and the logs of compacted topics."""
