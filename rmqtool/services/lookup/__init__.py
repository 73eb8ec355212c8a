"""Messages, queues, topics and config files, looked up."""
