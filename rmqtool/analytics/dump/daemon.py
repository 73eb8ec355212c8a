"""What Spark starts its Python workers from on this machine: they are forked from it with all loaded that tasks need.

Named by the setting ``spark.python.daemon.module``. Without it each worker loads Arrow and compiled code for itself.
"""

import gc

from pyspark.daemon import manager

MODULE = "rmqtool.analytics.dump.daemon"

if __name__ == "__main__":
    from rmqtool.analytics.dump import tasks
    from rmqtool.analytics.table.column_reader import load

    assert tasks
    load()
    # a worker looks for garbage behind each task: through all that is loaded, if it is not told to leave that alone
    gc.collect()
    gc.freeze()
    manager()
