"""What a name server answers (namesrv.processor.DefaultRequestProcessor, ClientRequestProcessor)."""

import asyncio
import logging
import zlib
from collections.abc import Callable

from formats.errors import BadText
from formats.fastjson.declare import Declared, body_of, read_body
from formats.model.topics import DataVersion
from formats.remoting import bodies as b
from formats.remoting import namesrv as n
from formats.remoting import registration
from formats.remoting.codes import VERSION_3_0_11, VERSION_4_9_4, VERSION_5_0_0, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from formats.remoting.headers import Topic
from rmqtool.errors import Refused
from rmqtool.remoting.connection import Answer, Connection
from rmqtool.rules.releases import NEWEST
from rmqtool.server.dispatch.table import Call, bind, collect, handles, refuse_unknown
from rmqtool.server.namesrv.brokers import Address
from rmqtool.server.namesrv.key_values import ORDER_TOPICS, KeyValueTable
from rmqtool.server.namesrv.routes import RouteTable
from rmqtool.server.namesrv.settings import FIXED, NamesrvSettings
from rmqtool.server.namesrv.topics import UnitFlag

log = logging.getLogger(__name__)

_SMALL = 64 * 1024  # bytes; larger registrations are read on another thread
_LARGEST = 1024 * 1024  # bytes of any other body
_ZLIB = b"x"  # first byte of Java's deflate streams; no JSON begins with it
_FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
_ZONE_MODE, _ZONE_NAME = "__ZONE_MODE", "__ZONE_NAME"


class Requests:
    """Answers the requests of brokers, clients and administrators.

    Attributes:
        routes: brokers and topics.
        key_values: the KV configuration.
        settings: of the name server.
        fixed: further settings to show.

    Args:
        clock: monotonic clock, in ms.
        kv_config: file that keeps the KV configuration, if any.
    """

    def __init__(
        self, clock: Callable[[], int], settings: NamesrvSettings | None = None, kv_config: str | None = None
    ) -> None:
        self.routes, self.settings = RouteTable(), settings or NamesrvSettings()
        self.key_values = KeyValueTable(kv_config)
        self.fixed: dict[str, str] = {}
        self._clock = clock
        self._registering = asyncio.Lock()
        self._handlers = bind([self], NEWEST)

    def handle(self, connection: Connection, request: Command) -> Answer:
        """The answer to a request, or an awaitable of it.

        Raises:
            FormatError: the header or body is not the request's.
            Refused: the request is refused.
        """
        handler = self._handlers.get(request.code)
        if handler is None:
            return refuse_unknown(request)
        has_limit = request.code != C.REGISTER_BROKER and REQUESTS[request.code].body is not None
        if has_limit and len(request.body) > _LARGEST:
            raise Refused(f"a body of {len(request.body)} bytes; {_LARGEST} are allowed")
        return handler(connection, request)

    def end_connection(self, connection: Connection) -> None:
        """Forget brokers that registered over a closed connection."""
        for at in self.routes.end_connection(connection):
            log.info("broker %s is gone: its connection has ended", _join_names(at.address, at.cluster))

    def expire(self) -> None:
        """Forget brokers whose heartbeats are overdue."""
        for at in self.routes.expire(self._clock()):
            log.warning("broker %s is gone: it was not heard of for too long", _join_names(at.address, at.cluster))

    # -- brokers ------------------------------------------------------------------------------------------------------

    @handles(C.REGISTER_BROKER)
    def register(self, call: Call[n.RegisterBroker, bytes]) -> Answer:
        who = call.header
        if who.body_crc32 and zlib.crc32(call.body) & 0x7FFFFFFF != who.body_crc32:
            return call.request.response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        # large ones are read on another thread, one at a time because of their memory
        if self._registering.locked() or _is_compressed(call) or len(call.body) > _SMALL:
            return self._register_beside(call)
        return self._enter(call, *_registration(call))

    async def _register_beside(self, call: Call[n.RegisterBroker, bytes]) -> Command:
        async with self._registering:
            return self._enter(call, *await asyncio.to_thread(_registration, call))

    def _enter(self, call: Call[n.RegisterBroker, bytes], table: b.TopicTable, filters: list[str] | None) -> Command:
        who, connection = call.header, call.connection
        if connection.closed:
            raise Refused("the broker's connection has ended")  # otherwise it would stay until it expires
        is_new = Address(who.cluster_name, who.broker_addr) not in self.routes.brokers.live
        zone = (call.request.fields or {}).get(_ZONE_NAME)
        master = self.routes.register(who, table, filters, zone=zone, connection=connection, now=self._clock())
        if master is None:
            log.warning(
                "broker %s with id %d registers from %s, but the one that is known has newer data, and stays",
                _join_names(who.broker_name, who.broker_addr, who.cluster_name), who.broker_id, connection.peer,
            )  # fmt: skip
            return call.answer(n.Registered())
        if is_new:
            log.info(
                "broker %s with id %d registers from %s",
                _join_names(who.broker_name, who.broker_addr, who.cluster_name), who.broker_id, connection.peer,
            )  # fmt: skip
        orders = self.key_values.table.get(ORDER_TOPICS)
        if orders is None or not self.settings.return_order_topic_config_to_broker:
            return call.answer(master)
        return call.answer(master, b.KVTable(orders))

    @handles(C.UNREGISTER_BROKER)
    def unregister(self, call: Call[n.BrokerAddress, None]) -> Command:
        who = call.header
        self.routes.unregister(who.cluster_name, who.broker_addr, who.broker_name)
        log.info("broker %s unregisters", _join_names(who.broker_name, who.broker_addr, who.cluster_name))
        return call.request.response()

    @handles(C.QUERY_DATA_VERSION)
    def query_version(self, call: Call[n.BrokerAddress, DataVersion]) -> Command:
        who = call.header
        changed, known = self.routes.compare_version(who, call.body, self._clock())
        return call.answer(n.Changed(changed=changed), body_of(known) if known else b"")

    @handles(C.BROKER_HEARTBEAT)
    def take_heartbeat(self, call: Call[n.Alive, None]) -> Command:
        who = call.header
        self.routes.heartbeat(who.cluster_name, who.broker_addr, self._clock())
        return call.request.response()

    @handles(C.GET_BROKER_MEMBER_GROUP)
    def list_members(self, call: Call[n.BrokerMembers, None]) -> Command:
        asked = call.header
        return _body(call.request, b.MemberGroupResponse(self.routes.members(asked.cluster_name, asked.broker_name)))

    @handles(C.REGISTER_TOPIC_IN_NAMESRV)
    def register_topic(self, call: Call[Topic, b.TopicRouteData]) -> Command:
        asked = call.header
        self.routes.register_topic(asked.topic, call.body.queue_datas)
        return call.request.response()

    @handles(C.GET_BROKER_CLUSTER_INFO)
    def show_cluster(self, call: Call[None, None]) -> Command:
        return _body(call.request, self.routes.cluster_info())

    # -- clients ------------------------------------------------------------------------------------------------------

    @handles(C.GET_ROUTEINFO_BY_TOPIC)
    def find_route(self, call: Call[Topic, None]) -> Command:
        asked = call.header
        fields = call.request.fields or {}
        zone = fields.get(_ZONE_NAME, "").strip() if fields.get(_ZONE_MODE, "").lower() == "true" else None
        route = self.routes.route(asked.topic, acting_master=self.settings.support_acting_master, zone=zone)
        if route is None:
            remark = f"No topic route info in name server for the topic: {asked.topic}\n{_FAQ}"
            return call.request.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self.settings.order_message_enable:
            route.order_topic_conf = self.key_values.get(ORDER_TOPICS, asked.topic)
        standard = call.request.version >= VERSION_4_9_4 or bool(asked.accept_standard_json_only)
        return call.request.response(body=body_of(route, quote_numbers=standard))

    # -- administrators -----------------------------------------------------------------------------------------------

    @handles(C.WIPE_WRITE_PERM_OF_BROKER)
    def wipe_write_permission(self, call: Call[n.BrokerName, None]) -> Command:
        asked = call.header
        count = self.routes.wipe_write(asked.broker_name)
        log.info("%s takes the write permission from %s", call.connection.peer, _join_names(asked.broker_name))
        return call.answer(n.Wiped(wipe_topic_count=count))

    @handles(C.ADD_WRITE_PERM_OF_BROKER)
    def add_write_permission(self, call: Call[n.BrokerName, None]) -> Command:
        asked = call.header
        count = self.routes.add_write(asked.broker_name)
        log.info("%s gives the write permission to %s", call.connection.peer, _join_names(asked.broker_name))
        return call.answer(n.Added(add_topic_count=count))

    @handles(C.DELETE_TOPIC_IN_NAMESRV)
    def delete_topic(self, call: Call[Topic, None]) -> Command:
        asked = call.header
        self.routes.delete_topic(asked.topic, asked.cluster_name)
        log.info("%s deletes topic %s", call.connection.peer, _join_names(asked.topic))
        return call.request.response()

    @handles(C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    def list_topics(self, call: Call[None, None]) -> Command:
        enabled = self.settings.enable_all_topic_list
        return _body(call.request, self.routes.all_topics()) if enabled else _answer_disabled(call.request)

    @handles(C.GET_TOPICS_BY_CLUSTER)
    def list_topics_of_cluster(self, call: Call[n.ClusterName, None]) -> Command:
        cluster = call.header.cluster
        return (
            _body(call.request, self.routes.cluster_topics(cluster))
            if self.settings.enable_topic_list
            else _answer_disabled(call.request)
        )

    @handles(C.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    def list_system_topics(self, call: Call[None, None]) -> Command:
        return _body(call.request, self.routes.system_topics())

    @handles(C.GET_UNIT_TOPIC_LIST, C.GET_HAS_UNIT_SUB_TOPIC_LIST, C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    def list_unit_topics(self, call: Call[None, None]) -> Command:
        if not self.settings.enable_topic_list:
            return _answer_disabled(call.request)
        wanted, unwanted = {
            C.GET_UNIT_TOPIC_LIST: (UnitFlag.UNIT, UnitFlag.NONE),
            C.GET_HAS_UNIT_SUB_TOPIC_LIST: (UnitFlag.SUBSCRIBED, UnitFlag.NONE),
            C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (UnitFlag.SUBSCRIBED, UnitFlag.UNIT),
        }[C(call.request.code)]
        return _body(call.request, self.routes.unit_topics(wanted, unwanted))

    @handles(C.PUT_KV_CONFIG)
    def put_key_value(self, call: Call[n.KeyValue, None]) -> Command:
        entry = call.header
        if entry.value is None:
            raise BadText(0, "KeyValue without value")
        self.key_values.put(entry.namespace, entry.key, entry.value)
        return call.request.response()

    @handles(C.GET_KV_CONFIG)
    def get_key_value(self, call: Call[n.KeyValue, None]) -> Command:
        entry = call.header
        value = self.key_values.get(entry.namespace, entry.key)
        if value is not None:
            return call.answer(n.KVValue(value=value))
        remark = f"No config item, Namespace: {entry.namespace} Key: {entry.key}"
        return call.request.response(ResponseCode.QUERY_NOT_FOUND, remark, fields={})

    @handles(C.DELETE_KV_CONFIG)
    def delete_key_value(self, call: Call[n.KeyValue, None]) -> Command:
        entry = call.header
        self.key_values.delete(entry.namespace, entry.key)
        return call.request.response()

    @handles(C.GET_KVLIST_BY_NAMESPACE)
    def get_namespace(self, call: Call[n.Namespace, None]) -> Command:
        namespace = call.header.namespace
        table = self.key_values.table.get(namespace)
        if table is not None:
            return _body(call.request, b.KVTable(table))
        return call.request.response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")

    @handles(C.UPDATE_NAMESRV_CONFIG)
    def update_settings(self, call: Call[None, bytes]) -> Command:
        text = _text(call.body)
        try:
            self.settings.update(text)
        except Refused as err:
            return call.request.response(ResponseCode.NO_PERMISSION, str(err))
        log.info("%s changes the settings", call.connection.peer)
        return call.request.response()

    @handles(C.GET_NAMESRV_CONFIG)
    def show_settings(self, call: Call[None, None]) -> Command:
        return call.request.response(body=self.settings.text(self._fixed_settings()).encode())

    @handles(C.GET_CLIENT_CONFIG)
    def show_settings_named(self, call: Call[None, b.ConfigKeys]) -> Command:
        return call.request.response(body=self.settings.text(self._fixed_settings(), call.body.keys).encode())

    def _fixed_settings(self) -> dict[str, str]:
        return {"configBlackList": ";".join(FIXED), **self.fixed}


REQUESTS = collect(Requests)
"""By request code."""


def _registration(call: Call[n.RegisterBroker, bytes]) -> tuple[b.TopicTable, list[str] | None]:
    """Topics and filter servers of a registration.

    Raises:
        FormatError: the body does not hold what is declared.
    """
    version = call.request.version
    if not call.body:
        return b.TopicTable(), []
    if version < VERSION_3_0_11:
        return read_body(b.TopicTable, call.body), None
    if _is_compressed(call):
        body = registration.read(call.body, mappings=version >= VERSION_5_0_0)
    else:
        body = read_body(b.RegisterBrokerBody, call.body)
    return body.topic_config_serialize_wrapper, body.filter_server_list


def _is_compressed(call: Call[n.RegisterBroker, bytes]) -> bool:
    # brokers of 5.3.3 with compressedRegister declare a compressed body as uncompressed
    return call.header.compressed or call.body[:1] == _ZLIB


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as err:
        raise BadText(err.start, "settings that are not UTF-8") from None


def _body(request: Command, body: Declared) -> Command:
    return request.response(body=body_of(body))


def _answer_disabled(request: Command) -> Command:
    return request.response(ResponseCode.SYSTEM_ERROR, "disable")


def _join_names(*names: str) -> str:
    """Names from the wire for the log: on one line, and not too long."""
    return " ".join(ascii(name[:100]) if not name.isprintable() else name[:100] for name in names)
