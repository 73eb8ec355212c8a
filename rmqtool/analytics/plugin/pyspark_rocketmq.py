"""Where Spark looks: it imports every top-level ``pyspark_*`` module and registers its ``DefaultSource``.

The wheel has this file at its top level. Whoever has rmqtool installed imports it with every first use of a Python data
source, so it loads neither pyarrow nor the engine.
"""

from rmqtool.analytics.source.tables_source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
