"""Where Spark looks: it imports every top-level ``pyspark_*`` module and registers its ``DefaultSource``.

The wheel has this file at its top level. Whoever has rmqtool installed imports it with every first use of a Python data
source, so it loads neither pyarrow nor the engine.

A script that imports it before its session starts has Spark run this very Python, also when it was started by path
(``.venv/bin/python script.py``); without that Spark takes the ``python3`` of PATH.
"""

from rmqtool.analytics.source.tables_source import RocketMQSource as DefaultSource
from rmqtool.analytics.spark.python import offer_this_python

__all__ = ["DefaultSource"]

offer_this_python()
