"""The process from which Spark forks its Python workers on this machine, with all loaded that tasks need.

Spark runs it where the setting ``spark.python.daemon.module`` names it. Without it each worker loads Arrow and compiled
code for itself.
"""

if __name__ == "__main__":
    import gc

    from pyspark.daemon import manager

    from rmqtool.analytics.dump import tasks
    from rmqtool.analytics.table.column_reader import load

    assert tasks
    load()
    # a worker collects garbage after each task, and would look through all that is loaded if it were not frozen
    gc.collect()
    gc.freeze()
    manager()
