"""dump-to-parquet."""
