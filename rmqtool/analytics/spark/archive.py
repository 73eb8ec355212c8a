"""Where the archive of Spark's Java classes lies, which later starts map into memory.

The JVM itself checks that the archive was made by the same Java from the same jars, and goes without it otherwise.
"""

import hashlib
import os

from rmqtool.analytics.local.cache import cache_dir
from rmqtool.analytics.spark.java import Java


def archive_of(java: Java) -> str:
    """Where the file for a Java lies, or would."""
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
    """Remove the files of all Javas; their paths."""
    folder = cache_dir("spark", "classes")
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    for path in paths:
        os.unlink(path)
    return paths
