"""The work of ``explain``."""

import sys
from textwrap import wrap

from rmqtool.admin.doctor.codes import CODES as CLUSTER_CODES
from rmqtool.cli.read.show_steps import lines_of_steps
from rmqtool.cli.render.output import Column, write_all, write_object, writer
from rmqtool.cli.render.text import MOST_COLUMNS, room_of
from rmqtool.errors import BadValue
from rmqtool.store.check.codes.all import CODE_FIELDS, CODES, Code

_CODE_COLUMNS = (Column("code"), Column("severity"), Column("title", wide=True))
_TEXTS = (
    ("meaning", "What it means"),
    ("cause", "How it comes about"),
    ("broker", "What a broker does"),
)


def run_explain(code: str | None, output: str) -> int:
    """``explain``: always 0.

    Raises:
        BadValue: no such code.
    """
    codes = CODES | CLUSTER_CODES
    if code is None:
        write_all(writer(output, CODE_FIELDS, _CODE_COLUMNS), (kind.to_dict() for kind in codes.values()))
        return 0
    kind = codes.get(code)
    if kind is None:
        from difflib import get_close_matches

        near = get_close_matches(code, codes, 3)
        raise BadValue(
            f"{code!r} is not a code of check or doctor" + (f" (did you mean {' or '.join(near)}?)" if near else "")
        )
    if output in ("json", "ndjson"):
        write_object(output, kind.to_dict())
    elif output == "csv":
        write_all(writer("csv", CODE_FIELDS, ()), [kind.to_dict()])
    else:
        _explain(kind)
    return 0


def _explain(kind: Code) -> None:
    width = min(MOST_COLUMNS, room_of(sys.stdout) or MOST_COLUMNS)
    lines = wrap(f"{kind.code} ({kind.severity}): {kind.title}", width, subsequent_indent="  ", break_on_hyphens=False)
    for name, title in _TEXTS:
        lines += ["", f"{title}:"]
        text = getattr(kind, name)
        lines += wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    lines += ["", "What to do:", *lines_of_steps(kind.steps, width)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
