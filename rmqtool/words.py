"""Words that every layer needs to say something to people."""


def counted(number: int, one: str, many: str = "") -> str:
    """A number and what is counted: ``1 file``, ``2 files``.

    Args:
        many: the word for more than one, where it is not the other with an s.
    """
    return f"{number} {one if number == 1 else many or one + 's'}"
