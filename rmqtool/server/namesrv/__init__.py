"""A name server: brokers register, and clients ask it for routes (RocketMQ's namesrv)."""
