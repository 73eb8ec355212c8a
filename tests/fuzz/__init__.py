"""Whole stores damaged at random, thousands of them, read and recovered within one process, or several.

Run as ``python -m tests.fuzz --count N --seed S``. Only errors that a command would answer in one line may come out.
"""
