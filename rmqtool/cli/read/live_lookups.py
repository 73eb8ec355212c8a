"""Reads of a queue of a live cluster, for the query commands."""

from rmqtool.admin.live.messages import LiveMessages, WireRead
from rmqtool.admin.target import Target
from rmqtool.cli.render.text import note
from rmqtool.client.cluster.errors import NoRoute
from rmqtool.contract import BodyForm, message_row


def read_live(target: Target, topic: str, queue_id: int, offset: int, count: int, broker: str | None) -> WireRead | str:
    """One pull, or why there is none."""
    try:
        pulled = LiveMessages(target, note, broker=broker).read(topic, queue_id, offset, count)
    except NoRoute as err:
        return str(err)
    return pulled or _no_queue(topic, queue_id, broker)


def time_row_of(
    target: Target, topic: str, queue_id: int, timestamp: int, broker: str | None, body: BodyForm
) -> dict[str, object] | str:
    """The row of ``query-time``, or why there is none."""
    try:
        place = LiveMessages(target, note, broker=broker).offset_at(topic, queue_id, timestamp)
    except NoRoute as err:
        return str(err)
    if place is None:
        return _no_queue(topic, queue_id, broker)
    offset, message = place
    row = message_row(message.record, message.physical_offset, body) if message else {"queueOffset": offset}
    return {**row, "topic": topic, "queueId": queue_id, "timestamp": timestamp, "offset": offset}


def _no_queue(topic: str, queue_id: int, broker: str | None) -> str:
    where = f"broker {broker} has" if broker is not None else "no broker has"
    return f"{where} {'no ' if broker is not None else ''}queue {queue_id} of topic {topic} to read from"
