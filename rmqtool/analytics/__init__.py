"""Stores as tables: Arrow, Parquet, and distribution of the work with Spark.

Imports nothing, because pyarrow and pyspark load slowly and most commands need neither.
"""
