"""A store that is held open: messages and queues of it, and the tables that its broker keeps."""
