"""The construct declarations of every binary file, said once.

Everything else about a layout (sizes, fast structs, NumPy dtypes, Arrow types, explained hex dumps) derives from these;
``python -m formats.layouts.derive`` writes the part that must be had without importing construct.
"""
