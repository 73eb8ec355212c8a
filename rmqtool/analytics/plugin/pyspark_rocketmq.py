"""Entry point for Spark, which imports every top-level ``pyspark_*`` module and registers its ``DefaultSource``.

The wheel installs this file at the top level. Every first use of a Python data source imports it if rmqtool is
installed, so it loads neither pyarrow nor the engine.
"""

from rmqtool.analytics.source.tables_source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
