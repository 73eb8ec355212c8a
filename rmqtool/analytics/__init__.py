"""Stores as tables: Arrow, Parquet, and the Spark that spreads the work.

Nothing is imported here: pyarrow and pyspark are slow to load, and most commands need neither.
"""
