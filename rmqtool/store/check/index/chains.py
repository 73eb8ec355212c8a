"""Check one index file by itself: its count, its slots, and its chains from newest to oldest entry."""

from collections.abc import Iterator

import numpy as np

from formats.arrays import Column
from formats.index import entry_at, slot_at, slots_array
from rmqtool.store.check.codes.all import INFO, WARNING
from rmqtool.store.check.common.context import Context
from rmqtool.store.index.chains import BLOCK, Chains
from rmqtool.store.index.reader import IndexView

_AT_COUNT, _AT_SLOT_COUNT, _AT_PREVIOUS = 36, 32, 16


def check_chains(ctx: Context, view: IndexView, name: str, table: Column, *, moot: bool) -> Iterator[None]:
    """Check counts and chains; takes four bytes of memory per slot.

    Args:
        table: entries in use, from number 0.
        moot: whether the next start rebuilds the file, so that its header does not matter.
    """
    findings, header, count = ctx.found, view.header, max(len(table), 1)
    if count != header.next_number:
        # after a crash the header may lag
        severity = INFO if moot else WARNING
        findings.add(
            "index-count", name, severity=severity, offset=_AT_COUNT, expected=count, actual=header.index_count
        )
    chains = Chains(view.slots)
    for start in range(1, count, BLOCK):
        part = table[start : min(start + BLOCK, count)]
        expected = chains.previous(start, part["key_hash"])
        _check_previous(ctx, view, name, start, part["previous_entry"].astype(np.int64), expected)
        yield
    newest = chains.newest
    slots_now = slots_array(view.view, view.slots).astype(np.int64)
    wrong = np.flatnonzero(slots_now != newest)
    if len(wrong):
        findings.many(
            "index-chain",
            name,
            len(wrong),
            lambda i: {
                "offset": slot_at(int(wrong[i])),
                "expected": f"slot {wrong[i]}: newest entry {newest[wrong[i]]}",
                "actual": str(slots_now[wrong[i]]),
            },
        )
    in_use = int((newest > 0).sum())
    if in_use != header.hash_slot_count:
        expected_slots = f"{in_use} slots in use"
        findings.add("index-slots", name, offset=_AT_SLOT_COUNT, expected=expected_slots, actual=header.hash_slot_count)


def _check_previous(ctx: Context, view: IndexView, name: str, start: int, actual: Column, expected: Column) -> None:
    wrong = np.flatnonzero(actual != expected)
    if len(wrong):
        ctx.found.many(
            "index-chain",
            name,
            len(wrong),
            lambda i: {
                "offset": entry_at(view.slots, start + int(wrong[i])) + _AT_PREVIOUS,
                "expected": f"entry {start + wrong[i]}: the one before it is {expected[wrong[i]]}",
                "actual": str(actual[wrong[i]]),
            },
        )
