"""Files of other forms of store: DLedger, controller epochs, timer wheel, compaction, RocksDB."""
