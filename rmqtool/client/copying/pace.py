"""How fast messages are sent."""

import asyncio


class Pace:
    """Lets so many messages a second pass.

    Args:
        told: ends a wait.
    """

    def __init__(self, rate: float | None, told: asyncio.Event) -> None:
        self._rate, self._told, self._next = rate, told, 0.0

    def most(self, batch: int) -> int:
        """Messages of a request, so that a slow rate is no sequence of bursts."""
        return batch if self._rate is None else max(1, min(batch, int(self._rate / 10)))

    async def wait(self, count: int) -> None:
        """Until so many messages may go."""
        if self._rate is None:
            return
        now = asyncio.get_running_loop().time()
        due = max(now, self._next)
        self._next = due + count / self._rate
        if due > now:
            try:
                async with asyncio.timeout(due - now):
                    await self._told.wait()
            except TimeoutError:
                pass
