"""Queries that both a store directory and a live cluster can answer.

:mod:`~rmqtool.admin.subjects` has a protocol for each subject. Classes of the services implement it for a directory,
:mod:`~rmqtool.admin.live` for a cluster.
"""
