"""Declared headers and bodies match all recorded frames."""

from dataclasses import replace

import pytest

from formats.errors import BadText
from formats.fastjson import declare
from formats.message.read import Record, read
from formats.remoting.codes import RequestCode
from formats.remoting.fields import to_fields
from formats.versions import V4_9, V5_3
from tests import wire
from tests.remoting.declarations import Records, body_of, declared, header_of

RELEASES = dict(zip((V4_9, V5_3), wire.RELEASES, strict=True))


def test_real_frames_are_read_into_their_declarations_and_built_again() -> None:
    frames = ((version, exchange) for version, release in RELEASES.items() for exchange in wire.frames(release))
    for version, exchange in frames:
        command = wire.parsed(exchange.raw)
        header = header_of(command, exchange.request_code)
        assert to_fields(header) == (command.fields or {})
        body = body_of(command, exchange.request_code)
        if body is not None and not isinstance(body, bytes):
            quoted = exchange.request_code == RequestCode.GET_ROUTEINFO_BY_TOPIC
            body = declare.body_of(body, version, quote_numbers=quoted)
        assert (body or b"") == command.body


def test_bodies_of_records_are_records_to_their_last_byte() -> None:
    count = 0
    for exchange in wire.all_frames():
        if declared(exchange.request_code, is_response=exchange.is_response).body is not Records:
            continue
        body, at = wire.parsed(exchange.raw).body, 0
        while at < len(body):
            record = read(body, at, len(body))
            assert isinstance(record, Record)
            at += record.total_size
            count += 1
    assert count > 100


def test_a_body_cut_at_any_byte_is_one_clear_error() -> None:
    seen = set()
    for exchange in wire.all_frames():
        command = wire.parsed(exchange.raw)
        kind = (exchange.request_code, exchange.is_response)
        body = body_of(command, exchange.request_code)
        if kind in seen or body is None or isinstance(body, bytes):
            continue
        seen.add(kind)
        for end in range(1, len(command.body), 1 if len(command.body) < 1000 else 53):
            with pytest.raises(BadText):
                body_of(replace(command, body=command.body[:end]), exchange.request_code)
    assert len(seen) > 20
