"""The process from which local Spark forks its Python workers, with the modules that tasks need already loaded.

Spark runs it if the setting ``spark.python.daemon.module`` names it. Without it, each worker loads Arrow and the
compiled kernels itself.
"""

if __name__ == "__main__":
    import gc

    from pyspark.daemon import manager

    from rmqtool.analytics.dump import tasks
    from rmqtool.analytics.table.column_reader import load

    assert tasks
    load()
    # workers collect garbage after each task; freezing keeps them from scanning the loaded modules every time
    gc.collect()
    gc.freeze()
    manager()
