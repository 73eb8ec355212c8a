"""Rules of RocketMQ that need neither a store nor a connection: validation, queue selection, rebalancing, releases."""
