"""Hot loops in C, each with an equivalent in plain Python; ``Code`` selects which one runs.

The C sources are in ``c/``; they are compiled when the package is built (``build/``) and loaded with ctypes
(``load/``). Each module here covers one subject: a protocol of entry points, their compiled implementation, and the
classes and functions for callers. ``plain/`` implements the same entry points in Python; ``tables/`` defines the shared
arrays.
"""
