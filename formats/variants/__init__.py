"""Files of other store variants: DLedger, controller epochs, timer wheel, compaction, RocksDB."""
