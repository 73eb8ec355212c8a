"""The Typer application: groups, exit codes, help."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rmqtool.cli import commands
from rmqtool.cli.commands import COMMANDS, WORDS
from rmqtool.cli.first_screen import TEXT, VERSION_TEXT
from rmqtool.cli.framework.live import check_live, with_target
from rmqtool.cli.framework.plain_values import convert_plainly
from rmqtool.cli.render.output import PEOPLE, TABLES

if TYPE_CHECKING:
    from inspect import Parameter, Signature

# newer releases of Typer bundle Click
_ClickException: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
_TYPE = re.compile(r"^(  \[?[A-Z]+\]?(?:\.\.\.)?(?: [A-Z]+(?:\.\.\.)?)*)( <[^<>\n]*>)", re.MULTILINE)
_NAMED = {"TOPIC": ("--topic", "-t"), "GROUP": ("--group", "-g")}  # arguments that may be given as options
_NEGATIVE = re.compile("-[0-9]+(ms|s|m|h|d)?")

_groups: dict[str, typer.Typer] = {}
_defaults: dict[str, str] = {}  # the user's, by parameter, from rmqtool.cli.defaults


class CommandGroup(TyperGroup):
    """A group of commands, listed in the order of the table."""

    def list_commands(self, ctx: Any) -> list[str]:
        entry = WORDS.get(self.name or "")
        return [*entry.commands] if isinstance(entry, commands.Group) else [*WORDS]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_plainly(self.get_params(ctx))
        return super().parse_args(ctx, args)


class RootGroup(CommandGroup):
    """The application; its help is the first screen, which ``rmqtool --help`` prints without loading it."""

    def get_help(self, ctx: Any) -> str:
        return TEXT.rstrip("\n")


class _Escaped(Exception):
    """An OSError on its way past Click."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


class CliCommand(TyperCommand):
    """A command whose last argument may be a negative number or a time like ``-48h``; Click takes them for options."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = [re.sub(r"[{}]", "", piece).replace("." * 6, "...") for piece in super().collect_usage_pieces(ctx)]
        return [re.sub(r"^\[(\[.*\])\]$", r"\1", piece) for piece in pieces]  # the metavar has brackets already

    def get_help(self, ctx: Any) -> str:
        # show an argument's name, not its Python type
        text = _TYPE.sub(lambda match: match[1] + " " * len(match[2]), super().get_help(ctx))
        return "\n".join(line.rstrip() for line in text.split("\n"))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        several = {p.name for p in self.params if getattr(p, "multiple", False)}
        ctx.default_map = {name: [value] if name in several else value for name, value in _defaults.items()}
        convert_plainly(self.get_params(ctx))
        options = [p for p in self.params if p.param_type_name == "option"]
        takes_value = {name for p in options if not getattr(p, "is_flag", False) for name in p.opts}
        args = with_target(COMMANDS.get(ctx.command_path.partition(" ")[2]), args, takes_value)
        args = self._with_named_arguments(args, takes_value)
        last, is_value = -1, False
        for at, word in enumerate(args):
            if is_value:
                is_value = False
            elif word == "--":
                return super().parse_args(ctx, args)
            elif not word.startswith("-") or _NEGATIVE.fullmatch(word):
                last = at
            else:
                is_value = word in takes_value
        if last >= 0 and args[last].startswith("-"):
            args = [*args[:last], *args[last + 1 :], "--", args[last]]
        return super().parse_args(ctx, args)

    def _with_named_arguments(self, args: list[str], takes_value: set[str]) -> list[str]:
        """Move ``--topic TOPIC`` or ``--group GROUP`` to the place of the argument that it stands for."""
        metavars = [(p.metavar or "").strip("[]") for p in self.params if p.param_type_name == "argument"]
        for metavar, names in _NAMED.items():
            if metavar not in metavars or takes_value & set(names):
                continue
            words, at, value, count = list(args), 0, None, 0
            place: int | None = None  # index of the word before which the value belongs
            while at < len(words) and words[at] != "--":
                name, equals, rest = words[at].partition("=")
                if name in names and (equals or at + 1 < len(words)):
                    value = rest if equals else words[at + 1]
                    del words[at : at + (1 if equals else 2)]
                    continue
                if words[at] in takes_value:
                    at += 1
                elif not words[at].startswith("-"):
                    if count == metavars.index(metavar):
                        place = at
                    count += 1
                at += 1
            if value is not None:
                place = at if place is None else place
                args = [*words[:place], value, *words[place:]]
        return args


app = typer.Typer(
    name="rmqtool", cls=RootGroup, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(VERSION_TEXT + "\n")
        raise typer.Exit


@app.callback(context_settings=SETTINGS)
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Inspect, query, recover and export Apache RocketMQ store directories, without a broker."""


def _find_decorator(name: str) -> Callable[..., Any]:
    """The decorator that registers a function as a command, in the application of its group if it has one."""
    word, _, inner = name.partition(" ")
    if not inner:
        return partial(app.command, word)
    if word not in _groups:
        entry = WORDS[word]
        assert isinstance(entry, commands.Group)
        _groups[word] = typer.Typer(cls=CommandGroup, no_args_is_help=True, help=entry.help, rich_markup_mode=None)
        app.add_typer(_groups[word], name=word)
    return partial(_groups[word].command, inner, short_help=COMMANDS[name].summary)


def command(name: str, example: str, *, progress: bool = False, tables: Sequence[str] = ()) -> Callable[..., Any]:
    """Register a command of the table. The function returns the exit code; the example ends its help.

    A parameter may be a dataclass whose fields are options, as in ``options``.

    Args:
        progress: it may take long, and shows its progress.
        tables: names of the tables in its report; CSV has the first unless another is asked for.
    """

    decorator, entry = _find_decorator(name), COMMANDS[name]

    def register(function: Callable[..., int]) -> Callable[..., int]:
        from dataclasses import fields, is_dataclass
        from functools import wraps
        from inspect import Parameter, Signature, signature

        from rmqtool.cli.framework.options import (
            SELECTED,
            ColumnsOption,
            Progress,
            ProgressOption,
            TableOption,
            WideOption,
            ZoneOption,
        )
        from rmqtool.cli.framework.privacy import as_private_as
        from rmqtool.cli.render.times import use_zone

        @wraps(function)
        def run_command(
            *args: Any, tz: str | None = None, columns: str | None = None, wide: bool = False, **kwargs: Any
        ) -> None:
            for name in too:  # an argument that is also an option
                word = kwargs.pop(f"{name}_word")
                kwargs[name] = kwargs[name] if word is None else [*(kwargs[name] or ()), word]
            use_zone(tz)
            TABLES.ask(columns, wide=wide)
            if tables:
                _ask_for_table(kwargs.pop("table"), tables, kwargs["output"])
            shown = kwargs.pop("progress").value if progress else "none"
            check_live(entry, kwargs)
            stores, output = kwargs.get("stores", [kwargs.get("store", "")]), kwargs.get("output")
            for name, kind in bundles.items():
                kwargs[name] = kind(**{field.name: kwargs.pop(field.name) for field in fields(kind)})
            try:
                with ExitStack() as contexts:
                    for store in stores:
                        contexts.enter_context(as_private_as(store))
                    contexts.enter_context(_showing(shown, output))
                    code = function(*args, **kwargs)
            except OSError as err:
                raise _Escaped(err) from err  # Click would handle a broken pipe itself
            TABLES.tell()
            raise typer.Exit(code)

        bundles: dict[str, Any] = {
            name: parameter.annotation
            for name, parameter in signature(function).parameters.items()
            if is_dataclass(parameter.annotation)
        }
        own = {parameter.name: parameter for parameter in _expand(signature(function))}
        too = {
            name: argument
            for option, argument in SELECTED
            for name, parameter in own.items()
            if parameter.annotation == option and "out" not in own  # where a guess would be dangerous
        }
        more: dict[str, Any] = {f"{name}_word": argument for name, argument in too.items()}
        more |= {"tz": ZoneOption} if own.keys() & {"store", "stores"} else {}  # whose output has times
        if "output" in own:
            more |= {"columns": ColumnsOption, "wide": WideOption}
        if tables:
            more["table"] = TableOption
        if progress:
            more["progress"] = ProgressOption
        defaults = {"wide": False, "progress": Progress.auto}
        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=option)
            for name, option in more.items()
        ]
        run_command.__signature__ = Signature([*own.values(), *added])  # type: ignore[attr-defined]
        run_command.__annotations__ = {name: parameter.annotation for name, parameter in own.items()} | more
        decorator(cls=CliCommand, epilog=f"Example: {example}", context_settings=SETTINGS)(run_command)
        return function

    return register


def _expand(signature: "Signature") -> Iterator["Parameter"]:
    """The parameters of a function, with dataclasses replaced by their fields."""
    from dataclasses import MISSING, fields, is_dataclass

    for parameter in signature.parameters.values():
        if not is_dataclass(parameter.annotation):
            yield parameter
            continue
        for field in fields(parameter.annotation):
            default = parameter.empty if field.default is MISSING else field.default
            yield parameter.replace(name=field.name, annotation=field.type, default=default)


def _ask_for_table(name: str | None, tables: Sequence[str], output: str) -> None:
    if name is not None or output == "csv":
        from rmqtool.cli.render.parts import PARTS

        PARTS.ask(name, tables, output)


def _showing(form: str, output: str | None) -> AbstractContextManager[None]:
    """Show progress while the command runs."""
    if form == "none":
        return nullcontext()
    from rmqtool.cli.render.progress import showing

    return showing(form, streams=output not in (None, *PEOPLE))


def load(words: Sequence[str] = ()) -> None:
    """Register the command that a command line names, or all of its group; all commands if it names none."""
    from importlib import import_module

    entry: commands.Entry | commands.Group | None = WORDS.get(words[0]) if words else None
    if isinstance(entry, commands.Group):
        entry = entry.commands.get(words[1], entry) if len(words) > 1 else entry
    if entry is None:
        chosen = [*COMMANDS.values()]
    else:
        chosen = [*entry.commands.values()] if isinstance(entry, commands.Group) else [entry]
    for module in dict.fromkeys(command.module for command in chosen):
        import_module(f"rmqtool.cli.{module}")


def run(argv: list[str], defaults: dict[str, str]) -> int:
    """Run a command line and return the exit code.

    Args:
        defaults: the user's own, for parameters that the command has.
    """
    _defaults.clear()
    _defaults.update(defaults)
    if argv and (argv[0] in WORDS or argv[0].startswith("-")):
        load(argv)
    try:
        code = app(argv, prog_name="rmqtool", standalone_mode=False)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except _Escaped as escaped:
        raise escaped.error from None
    except _ClickException as error:
        from rmqtool.cli.framework.usage import tell

        return tell(error, next((word for word in argv[:1] if word in WORDS), None))
    return code if isinstance(code, int) else 0
