"""``dump-to-parquet``: splits, tasks, files, publication."""
