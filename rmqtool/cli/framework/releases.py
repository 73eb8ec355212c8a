"""The release that ``--engine`` names."""

from rmqtool.errors import BadValue
from rmqtool.rules.releases import RELEASES, Release, release_named


def chosen_release(text: str) -> Release | None:
    """The release whose rules the user asks for; None for those of the release that wrote the store (``auto``).

    Raises:
        BadValue: no release with rules of its own has that name.
    """
    if text == "auto":
        return None
    try:
        return release_named(text)
    except ValueError:
        *others, last = RELEASES
        raise BadValue(f"--engine {text}: give {', '.join(('auto', *others))} or {last}") from None
