"""Reading Parquet files back into messages."""
