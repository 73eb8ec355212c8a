"""A name server: it knows the brokers and their topics, and tells clients of them (RocketMQ's namesrv)."""
