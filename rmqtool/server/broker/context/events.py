"""What parts of a broker tell each other without knowing each other."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Event(Generic[P]):
    """Something that happens again and again; subscribers are called at once, in the order in which they came."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, None]] = []

    def subscribe(self, subscriber: Callable[P, None]) -> None:
        """Have a function called whenever it happens."""
        self._subscribers.append(subscriber)

    def publish(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Say that it has happened."""
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)
