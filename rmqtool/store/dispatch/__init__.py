"""Convert records of the log to what queues and index need of them."""
