"""Add ``RocketMQ.java`` to a running session: the data source that knows columns, conditions and limits of each scan.

Spark brings the compiler (Janino) and everything else that the class needs. Without it, the Python data source answers
the same queries and reads more.
"""

import hashlib
import os
import tempfile
import warnings
import zipfile
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from rmqtool.analytics.local.cache import cache_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE = files(__package__ or "") / "RocketMQ.java"  # the package may be in an archive
_CLASS = "rmqtool.spark.RocketMQ"
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_JAVA = 17  # bytecode that every Java of Spark 4 runs
CATALOG = "spark.sql.catalog.rocketmq"


def add_planner(spark: "SparkSession") -> bool:
    """Make a session use the planner's side; return whether it does.

    A session of Spark Connect does not: its server needs the file that :func:`planner_jar` returns in ``--jars``.
    """
    from py4j.protocol import Py4JError

    if not hasattr(spark, "_jsparkSession"):
        return False
    try:
        jar, jvm = planner_jar(spark), cast(Any, spark._jvm)
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        url = jvm.java.io.File(jar).toURI().toURL()
        if url.toString() not in {each.toString() for each in loader.getURLs()}:
            loader.addURL(url)
    except Py4JError as err:
        reason = str(getattr(err, "java_exception", err)).splitlines()[0]
        warnings.warn(f"queries read all columns: {reason}", stacklevel=3)
        return False
    if spark.conf.get(CATALOG, None) is None:
        spark.conf.set(CATALOG, f"{_CLASS}$Catalog")
    return True


def planner_jar(spark: "SparkSession") -> str:
    """Return the path of the compiled classes, for ``--jars``; they are compiled once for a version of Spark."""
    source = _SOURCE.read_text(encoding="utf-8")
    key = hashlib.sha256(f"{spark.version}\0{source}".encode()).hexdigest()[:16]
    path = os.path.join(cache_dir("spark", "planner"), f"rocketmq-{key}.jar")
    if not os.path.exists(path):
        _write(path, _compile(spark._jvm, source))
    return path


def _compile(jvm: Any, source: str) -> dict[str, bytes]:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(_JAVA)
    compiler.cook(source)
    return {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}


def _write(path: str, classes: dict[str, bytes]) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with open(descriptor, "wb") as file, zipfile.ZipFile(file, "w") as jar:
            for name, code in classes.items():
                jar.writestr(f"{name.replace('.', '/')}.class", code)
            jar.writestr(_SERVICE, f"{_CLASS}\n")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
