"""Predict what a broker would do with a store whose queues are in RocksDB; nothing of it is carried out."""
