"""What a 5.3 broker would do with a store whose queues are in RocksDB; nothing of it is done here."""
