"""What Spark starts its Python workers from on this machine: they are forked from it with all loaded that tasks need.

Named by the setting ``spark.python.daemon.module``. Without it each worker loads Arrow and compiled code for itself.
"""

from pyspark.daemon import manager

MODULE = "rmqtool.analytics.daemon"

if __name__ == "__main__":
    from rmqtool.analytics import tasks
    from rmqtool.analytics.columns import load

    assert tasks
    load()
    manager()
