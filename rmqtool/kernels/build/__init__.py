"""Compiles the C sources: run by the build backend, and by hand as ``python -m rmqtool.kernels.build``."""
