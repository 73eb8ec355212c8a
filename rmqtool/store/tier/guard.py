"""Check that changes to local queues leave them in a state in which a broker can continue with the tier.

For every queue this means: local minimum <= the tier's end <= local end, and the metadata file can be read.
"""

from collections.abc import Iterable

from rmqtool.errors import Refused
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.tier.tier import Ranges, Tier

_NAMED = 3
DO_NOT_START = "do not start a broker"


def tier_dangers(layout: StoreLayout, ranges: Ranges) -> list[str]:
    """Return what a broker's next start would do to the tier, given queues with these ranges; one sentence each.

    Raises:
        UnreadableStore: the tier cannot be read.
    """
    tier = Tier.of(layout)
    return [danger.words for danger in tier.dangers(ranges)] if tier is not None else []


def refuse(layout: StoreLayout, dangers: Iterable[str]) -> None:
    """Refuse to write if there are any such dangers.

    Raises:
        Refused: there are; names the first ones.
    """
    if reasons := list(dangers):
        more = f"; and {len(reasons) - _NAMED} more queues" if len(reasons) > _NAMED else ""
        raise Refused(f"{layout.root}: {'; '.join(reasons[:_NAMED])}{more}. Nothing was changed; {DO_NOT_START}")
