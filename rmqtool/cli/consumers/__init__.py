"""Commands about consumer groups and the messages that wait for them."""
