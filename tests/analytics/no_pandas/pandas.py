"""Found before pandas, which PySpark's Connect brings along for its own test: rmqtool must do without."""

raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
