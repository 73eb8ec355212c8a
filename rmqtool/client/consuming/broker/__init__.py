"""What a consumer asks of brokers, besides messages and offsets."""
