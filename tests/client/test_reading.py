"""The loop that reads a queue, and offsets that are not kept yet: what is logged while a broker is away."""

import asyncio
import logging
from typing import Any

import pytest

from formats.remoting.shapes import MessageQueue
from rmqtool.client.consumer.offsets import RemoteOffsets
from rmqtool.client.consumer.reading import keep_reading
from rmqtool.remoting.errors import NotReached

QUEUE = MessageQueue("Orders", "broker-a", 0)
AWAY, OTHER = NotReached("broker-a: away"), NotReached("broker-a: refused")


def test_an_error_is_a_warning_when_it_is_new(caplog: pytest.LogCaptureFixture) -> None:
    answers = [AWAY, AWAY, AWAY, OTHER, OTHER, None, OTHER]
    left = list(answers)

    async def read() -> None:
        if (error := left.pop(0)) is not None:
            raise error

    with caplog.at_level(logging.INFO):
        asyncio.run(keep_reading(QUEUE, read, goes_on=lambda: bool(left), error_pause=0))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO", "WARNING", "INFO", "WARNING"]


class _Puller:
    def __init__(self, answers: list[NotReached | None]) -> None:
        self.answers = answers

    async def commit(self, _queue: MessageQueue, _offset: int) -> None:
        if (error := self.answers.pop(0)) is not None:
            raise error


def test_an_offset_is_a_warning_until_one_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    puller: Any = _Puller([AWAY, AWAY, None, AWAY])
    offsets = RemoteOffsets(lambda _topic: puller)

    async def write() -> None:
        for offset in range(4):
            await offsets.write({QUEUE: offset})

    with caplog.at_level(logging.INFO):
        asyncio.run(write())
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
