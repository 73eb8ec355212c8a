"""Hot loops in C, and beside each the plain way in Python; ``Code`` chooses.

The C sources lie in ``c/``, are compiled when the package is built (``build/``), and loaded with ctypes (``load/``).
Each module here has one subject: a protocol of entry points, their compiled form, and the classes and functions that
callers use. ``plain/`` has the same entry points in Python; what both read and fill stands in ``tables/``.
"""
