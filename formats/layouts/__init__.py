"""The construct declaration of every binary file format.

Everything else about a layout (sizes, compiled structs, NumPy dtypes, Arrow types, annotated hex dumps) is derived from
these; ``python -m formats.layouts.derive`` generates the part that must be importable without construct.
"""
