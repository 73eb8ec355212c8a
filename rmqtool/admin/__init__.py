"""One set of questions for a store directory and for a live cluster.

:mod:`~rmqtool.admin.subjects` has a protocol for each subject. The engine's own classes implement it for a directory,
:mod:`~rmqtool.admin.live` for a cluster.
"""
