"""Compiles the C sources; run by the build backend, or manually as ``python -m rmqtool.kernels.build``."""
