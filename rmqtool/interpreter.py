"""The Python that Spark starts for the data source: the one that runs this, unless another is configured.

Spark looks for data sources with the ``python3`` of PATH (``PythonUtils.defaultPythonExec``). A script that is run as
``.venv/bin/python script.py`` has another one, in which rmqtool is installed; Spark does not find it then.
"""

import os
import sys

_NAMED = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # the JVM is there already, and spark-submit says which Python is used


def offer_this_python() -> None:
    """Set ``PYSPARK_PYTHON`` for a session that is started later, where that :func:`is_needed`."""
    if is_needed():
        os.environ["PYSPARK_PYTHON"] = sys.executable


def is_needed() -> bool:
    """Whether Spark would take another Python than this one.

    It would not where the user has named a Python, where spark-submit runs this, or where ``python3`` of PATH is this
    very one, as in an activated environment.
    """
    if not sys.executable or _SUBMITTED in os.environ or any(os.environ.get(name) for name in _NAMED):
        return False
    for folder in os.get_exec_path():
        if os.access(os.path.join(folder, "python3"), os.X_OK):
            # it is the directory that makes a virtual environment: the program itself is a link to the same one
            return os.path.realpath(folder) != os.path.realpath(os.path.dirname(sys.executable))
    return True
