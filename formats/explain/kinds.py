"""Explain a file: assign every byte of a buffer to a named field, or to a run without fields.

The spans of every kind cover the buffer from the first byte to the last without gap or overlap, whatever its contents.
They follow the construct declarations in :mod:`formats.layouts`, so importing this module imports construct.
"""

from collections.abc import Callable, Iterator

from formats.explain import log as explain_log
from formats.explain import text as explain_text
from formats.explain import units as explain_units
from formats.explain.hexdump import hexdump
from formats.explain.spans import Span

__all__ = ["KINDS", "Span", "explain", "hexdump"]

KINDS: dict[str, Callable[[bytes | memoryview, int], Iterator[Span]]] = {
    "commitlog": explain_log.explain,
    "consumequeue": explain_units.consume_queue_spans,
    "consumequeue_ext": explain_units.ext_spans,
    "batchconsumequeue": explain_units.batch_queue_spans,
    "index": explain_units.index_spans,
    "checkpoint": explain_units.checkpoint_spans,
    "timerwheel": explain_units.timer_wheel_spans,
    "timerlog": explain_units.timer_log_spans,
    "timercheck": explain_units.timer_checkpoint_spans,
    "dledger": explain_log.explain_dledger,
    "compactionlog": explain_log.explain,
    "compactionqueue": explain_units.batch_queue_spans,
    "abort": explain_text.abort_spans,
    "lock": explain_text.lock_spans,
    "epochFileCheckpoint": explain_text.epoch_spans,
}


def explain(kind: str, buf: bytes | memoryview, base: int = 0, *, slots: int | None = None) -> Iterator[Span]:
    """Spans of a buffer.

    Args:
        kind: one of :data:`KINDS`. ``index``, ``checkpoint`` and ``timercheck`` need whole files, ``timerlog`` and
            ``consumequeue_ext`` the beginning of a file; others take any region.
        base: offset of the buffer's first byte in its offset space (file name + position), for comparing records with
            their actual position and for numbering units.
        slots: hash slots of an index file; by default inferred from its contents.

    Raises:
        KeyError: unknown kind.
    """
    if kind == "index":
        return explain_units.index_spans(buf, base, slots)
    return KINDS[kind](buf, base)
