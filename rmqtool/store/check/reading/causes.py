"""Which codes of ``check`` are consequences of others, as one damage shows in many places."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from rmqtool.store.check.codes.code import SEVERITIES

# By code, the codes that are its consequences if both occur; one with several causes is reported under the first.
_PAST_END = ("cq-no-message", "cq-other-message", "bcq-no-message", "index-ghost", "index-entry", "timer-no-message")
_AHEAD = (
    "offset-ahead",
    "delay-offset-ahead",
    "checkpoint-ahead",
    "timer-expired",
    "timer-checkpoint-ahead",
    "compaction-ahead",
)
_LATE = ("compaction-behind", "compaction-unqueued")
_BROKEN = (*_PAST_END, *_AHEAD, "ext-missing", "log-stale", "log-ordinal-gap")
_MOVED = ("log-ordinal-repeat", "log-time-backwards", "index-missing")
_QUEUE = ("cq-order", "cq-size", "cq-tags", "offset-ahead", "offset-expired")
_FOLLOWS: dict[str, tuple[str, ...]] = {
    "log-absent": (
        "cq-*",
        "bcq-*",
        "ext-*",
        "index-*",
        "checkpoint-*",
        "offset-*",
        "delay-offset-*",
        "timer-*",
        "compaction-*",
    ),
    "recovery-unfinished": ("abort-present",),
    "undo-unfinished": ("abort-present",),
    "file-unreadable": _BROKEN,
    "file-gap": (*_BROKEN, "log-*"),
    "file-size": (*_BROKEN, "log-torn"),
    "file-misnamed": (*_BROKEN, *_MOVED, "log-position"),
    "log-damage": (*_BROKEN, "log-crc", "log-blank-missing"),
    "log-position": (*_BROKEN, *_MOVED),
    "log-blank-missing": _BROKEN,
    "abort-present": ("log-torn", "cq-behind", "bcq-behind", "index-behind", "timer-behind", *_LATE),
    "log-torn": _BROKEN,
    "log-stale": (*_PAST_END, *_AHEAD),
    "log-ordinal-gap": ("cq-hole",),
    "cq-hole": _QUEUE,
    "cq-other-message": _QUEUE,
    "cq-missing": ("offset-ahead", "delay-offset-ahead", "cq-starts-late"),
    "index-chain": ("index-entry", "index-missing", "index-slots", "index-count"),
    "index-count": ("index-missing", "index-header", "index-slots"),
    "index-unreadable": ("index-missing",),
    "timer-wheel-missing": ("timer-lost", "timer-slot-*", "timer-behind"),
    "timer-wheel-size": ("timer-lost", "timer-slot-*"),
    "timer-log-damage": ("timer-chain", "timer-slot-outside", "timer-lost", "timer-behind"),
    "timer-checkpoint-empty": ("timer-lost", "timer-twice", "timer-behind"),
    "config-broken": ("topic-unknown", "group-unknown", "delay-offset-lost"),
    "config-missing": ("topic-unknown", "group-unknown", "delay-offset-lost"),
}


def causes_of(severities: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Root causes with the codes that follow from each; the worst first.

    Args:
        severities: severity by code.
    """
    parents = {code: _parent(code, severities) for code in severities}
    roots: dict[str, list[str]] = {}
    for code in severities:
        root = code
        while (above := parents[root]) is not None:
            root = above
        below = roots.setdefault(root, [])
        if root != code:
            below.append(code)

    def worst(root: str) -> int:
        return min(SEVERITIES.index(severities[code]) for code in (root, *roots[root]))

    return {root: tuple(roots[root]) for root in sorted(roots, key=worst)}


def _parent(code: str, severities: Mapping[str, str]) -> str | None:
    for cause, follows in _FOLLOWS.items():
        if cause in severities and cause != code and any(fnmatchcase(code, pattern) for pattern in follows):
            return cause
    return None
