"""Check consume queues against the commit log."""
