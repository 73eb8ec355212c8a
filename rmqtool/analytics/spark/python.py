"""The Python that Spark starts for a data source: the one that runs this, where nobody has named another.

Spark looks for data sources with the ``python3`` of PATH (``PythonUtils.defaultPythonExec``). A script that is run as
``.venv/bin/python script.py`` has another one, in which rmqtool is installed; Spark does not find it then.
"""

import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMED = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # the JVM is there already, and spark-submit says which Python is used


def offer_this_python() -> None:
    """Set ``PYSPARK_PYTHON`` for a session that is started later.

    Nothing is set where the user has named a Python, where spark-submit runs this, or where ``python3`` of PATH is this
    very one, as in an activated environment.
    """
    if not _is_named() and not _is_found_by_name():
        os.environ["PYSPARK_PYTHON"] = sys.executable


def give_this_python(spark: "SparkSession") -> None:
    """Have a local session that runs already start this Python for data sources that are registered with it.

    Spark Connect and clusters choose their Python themselves; there nothing changes.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or not (context.master or "").startswith("local") or not hasattr(spark, "_jsparkSession"):
        return
    if not _is_named() and not _is_found_by_name():
        context.pythonExec = sys.executable


def _is_named() -> bool:
    return _SUBMITTED in os.environ or any(os.environ.get(name) for name in _NAMED)


def _is_found_by_name() -> bool:
    """Whether ``python3`` of PATH is the Python that runs this: what counts is its directory, which makes a venv."""
    found = shutil.which("python3")
    if not sys.executable or found is None:
        return not sys.executable
    return os.path.realpath(os.path.dirname(found)) == os.path.realpath(os.path.dirname(sys.executable))
