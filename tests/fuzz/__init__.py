"""Fuzzing: thousands of randomly damaged stores, read and recovered in one or several processes.

Run as ``python -m tests.fuzz --count N --seed S``. Only errors that a command reports in one line may occur.
"""
