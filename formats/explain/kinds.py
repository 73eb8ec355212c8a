"""Explain a file: every byte of a buffer as part of a named field, or of a run that is none.

The spans of every kind follow one another without gap or overlap from the first byte to the last, whatever the bytes
are. They are driven by the construct declarations in :mod:`formats.layouts`, so importing this module imports
construct.
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
        kind: one of :data:`KINDS`. ``index``, ``checkpoint`` and ``timercheck`` take whole files, ``timerlog`` and
            ``consumequeue_ext`` a file's beginning, the others any region.
        base: offset of the buffer's first byte in its offset space (file name + position). With it records are
            compared with where they lie, and units carry their real numbers.
        slots: hash slots of an index file; by default worked out from its content.

    Raises:
        KeyError: the kind is not known.
    """
    if kind == "index":
        return explain_units.index_spans(buf, base, slots)
    return KINDS[kind](buf, base)
