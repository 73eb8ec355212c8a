"""Location of the archive of Spark's Java classes, which the JVM maps into memory to start faster.

The JVM itself checks that the archive was created by the same Java from the same jars, and ignores it otherwise.
"""

import hashlib
import os

from rmqtool.analytics.local.cache import cache_dir
from rmqtool.analytics.spark.java import Java


def archive_of(java: Java) -> str:
    """Return the path of the archive for a Java, whether or not it exists."""
    import pyspark

    program = os.path.realpath(os.path.join(java.home, "bin", "java"))
    stamps = (program, _mtime(program), java.version, pyspark.__version__, os.path.realpath(pyspark.__file__))
    key = hashlib.sha256("\0".join(map(str, stamps)).encode()).hexdigest()[:16]
    return os.path.join(cache_dir("spark", "classes"), f"{key}.jsa")


def _mtime(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def remove_archives() -> list[str]:
    """Remove the archives of all Javas; return their paths."""
    folder = cache_dir("spark", "classes")
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    for path in paths:
        os.unlink(path)
    return paths
