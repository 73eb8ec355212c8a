"""The options that say how bodies are shown."""

from rmqtool.cli.framework.options import BodyOptions
from rmqtool.contract import BodyForm


def body_form(options: BodyOptions) -> BodyForm:
    """The form of bodies that the options ask for.

    Raises:
        BadValue: the file is not a schema.
        UnreadableStore: the schema cannot be read.
        MissingRuntime: the library for it is not installed.
    """
    if not options.field and options.schema is None:
        return options.body.value
    from rmqtool.services.bodies.schemas import load_schema
    from rmqtool.services.bodies.view import BodyView

    if options.schema is None:
        return BodyView("json", tuple(options.field or ()))
    return BodyView(options.body.value, tuple(options.field or ()), load_schema(options.schema))
