"""How rows show bodies: in one of the forms of ``--body``, decoded by a schema, or as some fields of them."""

from typing import Any

from rmqtool.contract import render_body
from rmqtool.services.bodies.schemas import BodySchema, UndecodableBody

PREFIX = "body."
"""Before the path of a field, the name of its column."""


class BodyView:
    """What a row has of a body (:data:`rmqtool.contract.BodyForm`).

    Args:
        form: see :func:`rmqtool.contract.render_body`.
        fields: paths of the fields to show instead of the whole body: names, and numbers in lists, joined by dots.
        schema: what bodies are; those that are not are shown in ``form``.

    Attributes:
        columns: the columns that the fields add to a row.
        schema: as given.
    """

    def __init__(self, form: str = "auto", fields: tuple[str, ...] = (), schema: BodySchema | None = None) -> None:
        self._form, self.schema = form, schema
        self._paths = [(PREFIX + field, field.split(".")) for field in fields]
        self.columns = tuple(column for column, _path in self._paths)

    def __call__(self, body: bytes) -> dict[str, Any]:
        """The keys ``body`` and ``bodyEncoding``, ``bodyError`` if the schema is another's, and the fields."""
        error = None
        if self.schema is None:
            value, encoding = render_body(body, self._form)
        else:
            try:
                value, encoding = self.schema.decode(body), self.schema.kind
            except UndecodableBody as err:
                error = str(err)
                value, encoding = render_body(body, self._form)
        shown: dict[str, Any] = {"body": value, "bodyEncoding": encoding}
        if self._paths:
            shown["body"] = None
            inside = value if encoding not in ("utf8", "base64") else None
            shown |= {column: pick(inside, path) for column, path in self._paths}
        if error:
            shown["bodyError"] = error
        return shown


def pick(value: Any, path: list[str]) -> Any:
    """The value at a path; None if there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdecimal() and len(step) < 10:
            value = value[int(step)] if int(step) < len(value) else None
        else:
            return None
    return value
