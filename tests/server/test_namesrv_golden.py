"""Replay requests of real brokers, clients and admin tools to a name server against ours."""

from typing import Any

import pytest

from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.frame import Command, parse
from rmqtool.server.namesrv.server import NameServer
from tests import wire
from tests.server.name_servers import Peer, run

SETS = ("topicList", "brokerDatas", "queueDatas")  # lists in the order of a HashMap


def said(raw: bytes) -> Command:
    command = parse(raw)
    assert command is not None
    return command[0]


def value_of(body: bytes) -> Any:
    """A JSON body, with sets sorted."""

    def ordered(value: Any, member: str = "") -> Any:
        if isinstance(value, dict):
            return {key: ordered(item, str(key)) for key, item in value.items()}
        if isinstance(value, list):
            items = [ordered(item) for item in value]
            return sorted(items, key=str) if member in SETS else items
        return value

    return ordered(loads(body, BODY)) if body else None


def settings(body: bytes) -> dict[str, str]:
    return dict(line.split("=", 1) for line in body.decode().splitlines())


# told of every name server by its own
OWN_SETTINGS = {"listenPort", "bindAddress"}


@pytest.mark.parametrize("release", wire.RELEASES)
def test_real_requests_get_the_answers_of_the_real_name_server(release: str) -> None:
    compared: set[tuple[int, int]] = set()

    async def test() -> None:
        async with NameServer() as server:
            peers: dict[str, Peer] = {}
            for request, answer in wire.requests(release, "namesrv"):
                if request.connection not in peers:
                    peers[request.connection] = await Peer.to(server)
                peer = peers[request.connection]
                await peer.send(request.raw)
                if answer is None:
                    assert said(request.raw).is_oneway
                    # what is sent over other connections comes after it
                    await peer.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=1 << 30))
                    continue
                theirs, ours = said(answer.raw), await peer.read()
                same(request.request_code, theirs, ours)
                compared.add((request.request_code, theirs.code))
            for peer in peers.values():
                await peer.close()

    run(test)
    assert {code for code, _ in compared} == {
        RequestCode.PUT_KV_CONFIG, RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER,
        RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.GET_NAMESRV_CONFIG, RequestCode.ADD_WRITE_PERM_OF_BROKER,
    }  # fmt: skip
    assert (RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.TOPIC_NOT_EXIST) in compared


def same(code: int, theirs: Command, ours: Command) -> None:
    assert (ours.code, ours.opaque, ours.flag, ours.serializer) == (
        (theirs.code, theirs.opaque, theirs.flag, theirs.serializer)
    )
    assert ours.fields == theirs.fields
    if theirs.remark is None:
        assert ours.remark is None
    else:  # the page that the second line names has moved between the releases
        assert ours.remark is not None
        assert ours.remark.splitlines()[0] == theirs.remark.splitlines()[0]
        assert len(ours.remark.splitlines()) == len(theirs.remark.splitlines()) == 2
    if code == RequestCode.GET_NAMESRV_CONFIG:
        mine, real = settings(ours.body), settings(theirs.body)
        assert mine.keys() >= OWN_SETTINGS
        common = mine.keys() & real.keys() - OWN_SETTINGS
        assert {"orderMessageEnable", "configBlackList"} <= common
        assert {name: mine[name] for name in common} == {name: real[name] for name in common}
        assert "supportActingMaster" not in real or mine.keys() <= real.keys()  # all of ours are settings of 5.x
    else:
        assert value_of(ours.body) == value_of(theirs.body)
