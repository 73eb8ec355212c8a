"""A client of RocketMQ brokers of 4.9 and 5.3, over the remoting protocol."""
