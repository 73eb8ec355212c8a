"""Byte layouts of every file in a RocketMQ store directory.

Pure functions over buffers: nothing here opens a file, reads a clock or writes to a terminal.
"""
