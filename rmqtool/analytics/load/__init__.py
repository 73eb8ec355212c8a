"""Parquet files back into messages."""
