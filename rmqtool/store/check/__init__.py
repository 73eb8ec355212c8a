"""Read-only check of a whole store: every file by itself, then files against each other."""

from rmqtool.store.check.codes.all import CODES, Code
from rmqtool.store.check.common.findings import FINDING_FIELDS, Finding
from rmqtool.store.check.run import check_store, is_problem

__all__ = ["CODES", "FINDING_FIELDS", "Code", "Finding", "check_store", "is_problem"]
