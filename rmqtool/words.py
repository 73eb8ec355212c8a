"""Words that every layer needs to say something to people."""


def counted(number: int, one: str, many: str = "") -> str:
    """A number and what is counted: ``1 file``, ``2 files``.

    Args:
        many: the word for more than one, where it is not the other with an s.
    """
    return f"{number} {one if number == 1 else many or one + 's'}"


_commands: set[str] = set()  # those that were put into sentences


def command_line(*words: str) -> str:
    """A command of rmqtool as a person types it, for a sentence; line breaks never divide it."""
    line = " ".join(("rmqtool", *words))
    if not all(words) or not (line.isascii() and "".join(words).replace("-", "").isalnum()):
        from shlex import join

        line = join(["rmqtool", *words])
    _commands.add(line)
    return line


def commands_in(text: str) -> list[str]:
    """The command lines of :func:`command_line` that a text has, the longest first."""
    return sorted((line for line in _commands if line in text), key=len, reverse=True)


def with_store(text: str, store: str) -> str:
    """A text with a store's path instead of the word STORE, unless that is part of a path."""
    import re
    from shlex import quote

    def put(text: str) -> str:
        return re.sub(r"(?<![\w/])STORE(?![\w/])", lambda _match: quote(store), text)

    _commands.update(put(line) for line in commands_in(text))
    return put(text)
