"""Each message of a batch is the same as if it were sent alone."""

from random import Random

import pytest

from formats.errors import FormatError
from formats.message.bodies import build_batch
from formats.message.properties import DELAY, UNIQ_KEY, build
from rmqtool.client.producing.batching import batches
from rmqtool.client.producing.message import Message
from rmqtool.rules.sending import Rejected

IDS = [f"{number:032X}" for number in range(40)]
MIB = 1 << 20


def one_by_one(messages: list[Message], more: dict[str, str], separated: bool) -> bytes:
    named = [message.all_properties(more, unique_id) for message, unique_id in zip(messages, IDS, strict=False)]
    return build_batch(
        (message.flag, message.body, build(properties, trailing_separator=separated))
        for message, properties in zip(messages, named, strict=True)
    )


@pytest.mark.parametrize("separated", [False, True])
@pytest.mark.parametrize("more", [{}, {"INSTANCE_ID": "i"}, {UNIQ_KEY: "own"}], ids=["nothing", "a name", "an id"])
def test_each_as_if_it_was_alone(separated: bool, more: dict[str, str]) -> None:
    random = Random(1)
    for _case in range(300):
        ways = random.choice([1, 1, 2])  # messages that say the same, and others

        def some(*choice: object, ways: int = ways) -> list[object]:
            return random.sample(choice, min(ways, len(choice)))

        tags, keys = some(None, "A", "tag of ü", ""), some((), ("k1", "k2"), "text")
        properties, waits = some({}, {"a": "b"}, {UNIQ_KEY: "mine"}), some(True, False)[:1]
        messages = [
            Message(
                "T", random.randbytes(random.randrange(1, 9)), random.choice(tags), random.choice(keys),  # type: ignore[arg-type]
                random.choice(properties), random.randrange(3), wait_store_ok=bool(waits[0]),  # type: ignore[arg-type]
            )
            for _ in range(random.randrange(1, 12))
        ]  # fmt: skip
        made = batches(messages, IDS[: len(messages)], more, separated=separated, max_message_size=MIB, limit=MIB)
        assert [together.body for together in made] == [one_by_one(messages, more, separated)]
        (together,) = made
        for (message, named), own, unique_id in zip(together.messages, messages, IDS, strict=False):
            assert message is own
            assert named == own.all_properties(more, unique_id)


@pytest.mark.parametrize(
    "odd",
    [
        Message("Other", b"x"), Message("T", b""), Message("T", b"x" * (MIB + 1)), Message("T", b"x", delay_level=3),
        Message("T", b"x", wait_store_ok=False), Message("T", b"x", tags="a\x02b"),
        Message("T", b"x", properties={DELAY: "2"}), Message("T", b"x", properties={"p": "x" * 33_000}),
        Message("T", b"x", tags="x" * 32_740),
    ],
    ids=["topic", "empty", "large", "delay", "wait", "separator", "delay property", "properties", "with its id"],
)  # fmt: skip
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_that_cannot_go_along(odd: Message, place: int) -> None:
    messages = [Message("T", b"x"), Message("T", b"y")]
    messages.insert(place, odd)
    with pytest.raises((Rejected, FormatError)):
        build_all(messages)
    if odd.topic == "T" and odd.wait_store_ok:
        with pytest.raises((Rejected, FormatError)):
            build_all([odd] * 3)


def build_all(messages: list[Message]) -> list[bytes]:
    made = batches(messages, IDS[: len(messages)], {}, separated=False, max_message_size=MIB, limit=4 * MIB)
    return [together.body for together in made]


def test_none_at_all() -> None:
    with pytest.raises(Rejected):
        batches([], [], {}, separated=False, max_message_size=MIB, limit=MIB)
