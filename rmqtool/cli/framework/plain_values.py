"""Values of plain options and arguments, converted without Pydantic.

Newer releases of Typer build a Pydantic adapter for each parameter, and importing Pydantic takes as long as a whole
command on a small store. Text, plain numbers and choices are converted here. Typer converts anything else, and reports
errors.
"""

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, get_args, get_origin

_DIGITS = re.compile("-?[0-9]{1,18}")


class _Other(Exception):
    """A value that Typer has to convert."""


class _Conversion:
    """Replaces ``typer._coercion.RuntimeParam``, which is built only if needed."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self.build = build

    def __call__(self) -> "_Conversion":
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert the value of a parameter; Typer reports errors."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        try:
            return _convert(value, param.type_descriptor.annotation, param.type_descriptor.parameter_info)
        except _Other:
            return self.build().coerce(value, param=param, ctx=ctx)


def convert_plainly(params: Iterable[Any]) -> None:
    """Convert a command's parameters here where possible. Older releases of Typer do not use Pydantic."""
    for param in params:
        if hasattr(param, "get_runtime_param") and hasattr(param, "type_descriptor"):
            build = param.get_runtime_param
            if not isinstance(build, _Conversion):  # of an earlier command line in this process
                param.get_runtime_param = _Conversion(build)


def _convert(value: Any, annotation: Any, info: Any) -> Any:
    if info.parser is not None:
        raise _Other
    if get_origin(annotation) is list and isinstance(value, list | tuple):
        return [_convert(item, get_args(annotation)[0], info) for item in value]
    if annotation is str and isinstance(value, str):
        return value
    if annotation is bool and isinstance(value, bool):
        return value
    if annotation is int:
        return _number(value, info)
    choices = annotation if isinstance(annotation, type) and issubclass(annotation, StrEnum) else ()
    if isinstance(value, str) and value in list(choices):
        return annotation(value)
    raise _Other


def _number(value: Any, info: Any) -> int:
    number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value
    if type(number) is not int:
        raise _Other
    if (info.min is not None and number < info.min) or (info.max is not None and number > info.max):
        raise _Other
    return number
