"""``serve`` in a process that can be killed at any step: a broker, and a client that sends and reports answers."""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from formats.message.ids import parse_offset_id
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from rmqtool.cli.serve.running import until_stopped
from rmqtool.errors import RmqError
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import RemotingError
from rmqtool.server.serve import Served, ServeOptions

_ANYWHERE = ("127.0.0.1", 0)


def serve_and_send(store: str, conf: str, rows: Sequence[dict[str, Any]]) -> int:
    """Serve a store until all rows are sent one by one, or a signal arrives; prints a line for each stored one.

    Returns:
        The exit code of the command.
    """
    try:
        return asyncio.run(_serve(store, conf, rows))
    except (OSError, RmqError) as err:
        sys.stderr.write(f"error: {err}\n")
        return err.exit_code if isinstance(err, RmqError) else 3


async def _serve(store: str, conf: str, rows: Sequence[dict[str, Any]]) -> int:
    options = ServeOptions(broker_conf=conf, listen=_ANYWHERE, namesrv_listen=_ANYWHERE)
    async with (
        until_stopped() as told,
        Served(store, options) as served,
        open_connection("127.0.0.1", int(served.broker_address.rpartition(":")[2])) as client,
    ):
        doing = [asyncio.create_task(work) for work in (_send(client, rows), told.wait(), served.wait())]
        done, others = await asyncio.wait(doing, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.gather(*done)
    return told.exit_code


async def _send(client: Connection, rows: Sequence[dict[str, Any]]) -> None:
    for line, row in enumerate(rows, 1):
        header = h.Send(
            producer_group="p", topic=row["topic"], default_topic="TBW102", default_topic_queue_nums=4,
            queue_id=row["queueId"], sys_flag=0, born_timestamp=1_795_000_000_000, flag=0,
            properties=f"KEYS\x01{row['keys']}\x02",
        )  # fmt: skip
        request = Command(RequestCode.SEND_MESSAGE_V2, fields=to_fields(header), body=row["body"].encode())
        try:
            answer = await client.call(request, 60)
        except RemotingError:
            return  # the broker is gone
        if answer.code != ResponseCode.SUCCESS:
            sys.stderr.write(f"{answer.code}: {answer.remark}\n")
            continue
        sent = from_fields(h.Sent, answer.fields or {})
        told = {
            "line": line, "status": "PUT_OK", "topic": row["topic"], "queueId": sent.queue_id,
            "queueOffset": sent.queue_offset, "physicalOffset": parse_offset_id(sent.msg_id).physical_offset,
        }  # fmt: skip
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
