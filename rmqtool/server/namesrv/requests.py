"""What a name server answers (namesrv.processor.DefaultRequestProcessor, ClientRequestProcessor)."""

import asyncio
import logging
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from formats.errors import BadText
from formats.fastjson.declare import Declared, body_of, read_body
from formats.model.topics import DataVersion
from formats.remoting import bodies as b
from formats.remoting import namesrv as n
from formats.remoting import registration
from formats.remoting.codes import VERSION_3_0_11, VERSION_4_9_4, VERSION_5_0_0, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from formats.remoting.headers import Topic
from rmqtool.errors import Refused
from rmqtool.remoting.connection import Answer, Connection
from rmqtool.server.namesrv.brokers import Address
from rmqtool.server.namesrv.key_values import ORDER_TOPICS, KeyValues
from rmqtool.server.namesrv.routes import RouteTable
from rmqtool.server.namesrv.settings import FIXED, Settings
from rmqtool.server.namesrv.topics import Unit

log = logging.getLogger(__name__)
T = TypeVar("T", bound=Declared)

_SMALL = 64 * 1024  # bytes of a registration that is read at once; larger ones are read beside
_LARGEST = 1024 * 1024  # bytes of any other body
_ZLIB = b"x"  # first byte of what Java deflates; no JSON begins with it
_FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
_ZONE_MODE, _ZONE_NAME = "__ZONE_MODE", "__ZONE_NAME"


class Requests:
    """Answers the requests of brokers, clients and administrators.

    Attributes:
        routes: what is known of brokers and topics.
        key_values: the KV configuration.
        settings: of the name server.
        fixed: further settings, told where they are asked for.

    Args:
        clock: ms that never go back.
        kv_config: file that keeps the KV configuration, if one does.
    """

    def __init__(
        self, clock: Callable[[], int], settings: Settings | None = None, kv_config: str | None = None
    ) -> None:
        self.routes, self.settings = RouteTable(), settings or Settings()
        self.key_values = KeyValues(kv_config)
        self.fixed: dict[str, str] = {}
        self._clock = clock
        self._registering = asyncio.Lock()
        self._answers: dict[int, Callable[[Connection, Command], Answer]] = {
            C.PUT_KV_CONFIG: self._put_key_value,
            C.GET_KV_CONFIG: self._get_key_value,
            C.DELETE_KV_CONFIG: self._delete_key_value,
            C.GET_KVLIST_BY_NAMESPACE: self._get_namespace,
            C.REGISTER_BROKER: self._register,
            C.UNREGISTER_BROKER: self._unregister,
            C.QUERY_DATA_VERSION: self._query_version,
            C.BROKER_HEARTBEAT: self._heartbeat,
            C.GET_BROKER_MEMBER_GROUP: self._members,
            C.GET_ROUTEINFO_BY_TOPIC: self._route,
            C.GET_BROKER_CLUSTER_INFO: lambda _, r: _body(r, self.routes.cluster_info()),
            C.WIPE_WRITE_PERM_OF_BROKER: self._wipe,
            C.ADD_WRITE_PERM_OF_BROKER: self._add,
            C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            C.GET_TOPICS_BY_CLUSTER: self._cluster_topics,
            C.GET_SYSTEM_TOPIC_LIST_FROM_NS: lambda _, r: _body(r, self.routes.system_topics()),
            C.GET_UNIT_TOPIC_LIST: self._unit_topics,
            C.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_topics,
            C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_topics,
            C.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            C.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            C.UPDATE_NAMESRV_CONFIG: self._update_settings,
            C.GET_NAMESRV_CONFIG: self._get_settings,
            C.GET_CLIENT_CONFIG: self._get_settings_named,
        }

    def handle(self, connection: Connection, request: Command) -> Answer:
        """The answer to a request, or what gives it later.

        Raises:
            FormatError: a header or body that is not what belongs to the request.
            Refused: what it asks for is not done.
        """
        answer = self._answers.get(request.code)
        if answer is None:
            words = f" request type {request.code} not supported"
            return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, words)
        return answer(connection, request)

    def closed(self, connection: Connection) -> None:
        """A connection has ended; brokers that have registered over it are gone."""
        for at in self.routes.closed(connection):
            log.info("broker %s is gone: its connection has ended", _shown(at.address, at.cluster))

    def expire(self) -> None:
        """Forget brokers that were not heard of for too long."""
        for at in self.routes.expire(self._clock()):
            log.warning("broker %s is gone: it was not heard of for too long", _shown(at.address, at.cluster))

    # -- brokers ------------------------------------------------------------------------------------------------------

    def _register(self, connection: Connection, request: Command) -> Answer:
        who = from_fields(n.RegisterBroker, request.fields)
        if who.body_crc32 and zlib.crc32(request.body) & 0x7FFFFFFF != who.body_crc32:
            return request.response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        # those that take long are read beside, one at a time because they take memory too
        if self._registering.locked() or _is_compressed(request, who) or len(request.body) > _SMALL:
            return self._register_beside(connection, request, who)
        return self._enter(connection, request, who, _registration(request, who))

    async def _register_beside(self, connection: Connection, request: Command, who: n.RegisterBroker) -> Command:
        async with self._registering:
            read = await asyncio.to_thread(_registration, request, who)
            return self._enter(connection, request, who, read)

    def _enter(
        self,
        connection: Connection,
        request: Command,
        who: n.RegisterBroker,
        read: tuple[b.TopicTable, list[str] | None],
    ) -> Command:
        if connection.closed:
            raise Refused("the broker's connection has ended")  # or it would stay until its time is over
        is_new = Address(who.cluster_name, who.broker_addr) not in self.routes.brokers.live
        zone = (request.fields or {}).get(_ZONE_NAME)
        table, filters = read
        master = self.routes.register(who, table, filters, zone=zone, connection=connection, now=self._clock())
        if master is None:
            log.warning(
                "broker %s with id %d registers from %s, but the one that is known has newer data, and stays",
                _shown(who.broker_name, who.broker_addr, who.cluster_name), who.broker_id, connection.peer,
            )  # fmt: skip
            return _header(request, n.Registered())
        if is_new:
            log.info(
                "broker %s with id %d registers from %s",
                _shown(who.broker_name, who.broker_addr, who.cluster_name), who.broker_id, connection.peer,
            )  # fmt: skip
        orders = self.key_values.table.get(ORDER_TOPICS)
        if orders is None or not self.settings.return_order_topic_config_to_broker:
            return _header(request, master)
        return _header(request, master, body=body_of(b.KVTable(orders)))

    def _unregister(self, connection: Connection, request: Command) -> Answer:
        who = from_fields(n.Broker, request.fields)
        self.routes.unregister(who.cluster_name, who.broker_addr, who.broker_name)
        log.info("broker %s unregisters", _shown(who.broker_name, who.broker_addr, who.cluster_name))
        return request.response()

    def _query_version(self, connection: Connection, request: Command) -> Answer:
        who = from_fields(n.Broker, request.fields)
        changed, known = self.routes.changed(who, _read(DataVersion, request), self._clock())
        return _header(request, n.Changed(changed=changed), body=body_of(known) if known else b"")

    def _heartbeat(self, connection: Connection, request: Command) -> Answer:
        who = from_fields(n.Alive, request.fields)
        self.routes.heartbeat(who.cluster_name, who.broker_addr, self._clock())
        return request.response()

    def _members(self, connection: Connection, request: Command) -> Answer:
        asked = from_fields(n.Group, request.fields)
        return _body(request, b.MemberGroupResponse(self.routes.members(asked.cluster_name, asked.broker_name)))

    def _register_topic(self, connection: Connection, request: Command) -> Answer:
        asked = from_fields(Topic, request.fields)
        self.routes.register_topic(asked.topic, _read(b.TopicRouteData, request).queue_datas)
        return request.response()

    # -- clients ------------------------------------------------------------------------------------------------------

    def _route(self, connection: Connection, request: Command) -> Answer:
        asked = from_fields(Topic, request.fields)
        fields = request.fields or {}
        zone = fields.get(_ZONE_NAME, "").strip() if fields.get(_ZONE_MODE, "").lower() == "true" else None
        route = self.routes.route(asked.topic, acting_master=self.settings.support_acting_master, zone=zone)
        if route is None:
            words = f"No topic route info in name server for the topic: {asked.topic}\n{_FAQ}"
            return request.response(ResponseCode.TOPIC_NOT_EXIST, words)
        if self.settings.order_message_enable:
            route.order_topic_conf = self.key_values.get(ORDER_TOPICS, asked.topic)
        standard = request.version >= VERSION_4_9_4 or bool(asked.accept_standard_json_only)
        return request.response(body=body_of(route, quote_numbers=standard))

    # -- administrators -----------------------------------------------------------------------------------------------

    def _wipe(self, connection: Connection, request: Command) -> Answer:
        asked = from_fields(n.BrokerName, request.fields)
        count = self.routes.wipe_write(asked.broker_name)
        log.info("%s takes the write permission from %s", connection.peer, _shown(asked.broker_name))
        return _header(request, n.Wiped(wipe_topic_count=count))

    def _add(self, connection: Connection, request: Command) -> Answer:
        asked = from_fields(n.BrokerName, request.fields)
        count = self.routes.add_write(asked.broker_name)
        log.info("%s gives the write permission to %s", connection.peer, _shown(asked.broker_name))
        return _header(request, n.Added(add_topic_count=count))

    def _delete_topic(self, connection: Connection, request: Command) -> Answer:
        asked = from_fields(Topic, request.fields)
        self.routes.delete_topic(asked.topic, asked.cluster_name)
        log.info("%s deletes topic %s", connection.peer, _shown(asked.topic))
        return request.response()

    def _all_topics(self, connection: Connection, request: Command) -> Answer:
        enabled = self.settings.enable_all_topic_list
        return _body(request, self.routes.all_topics()) if enabled else _disabled(request)

    def _cluster_topics(self, connection: Connection, request: Command) -> Answer:
        cluster = from_fields(n.Cluster, request.fields).cluster
        return (
            _body(request, self.routes.cluster_topics(cluster))
            if self.settings.enable_topic_list
            else _disabled(request)
        )

    def _unit_topics(self, connection: Connection, request: Command) -> Answer:
        if not self.settings.enable_topic_list:
            return _disabled(request)
        wanted, unwanted = {
            C.GET_UNIT_TOPIC_LIST: (Unit.UNIT, Unit.NONE),
            C.GET_HAS_UNIT_SUB_TOPIC_LIST: (Unit.SUBSCRIBED, Unit.NONE),
            C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (Unit.SUBSCRIBED, Unit.UNIT),
        }[C(request.code)]
        return _body(request, self.routes.unit_topics(wanted, unwanted))

    def _put_key_value(self, connection: Connection, request: Command) -> Answer:
        entry = from_fields(n.KeyValue, request.fields)
        if entry.value is None:
            raise BadText(0, "KeyValue without value")
        self.key_values.put(entry.namespace, entry.key, entry.value)
        return request.response()

    def _get_key_value(self, connection: Connection, request: Command) -> Answer:
        entry = from_fields(n.KeyValue, request.fields)
        value = self.key_values.get(entry.namespace, entry.key)
        if value is not None:
            return _header(request, n.KVValue(value=value))
        words = f"No config item, Namespace: {entry.namespace} Key: {entry.key}"
        return request.response(ResponseCode.QUERY_NOT_FOUND, words, fields={})

    def _delete_key_value(self, connection: Connection, request: Command) -> Answer:
        entry = from_fields(n.KeyValue, request.fields)
        self.key_values.delete(entry.namespace, entry.key)
        return request.response()

    def _get_namespace(self, connection: Connection, request: Command) -> Answer:
        namespace = from_fields(n.Namespace, request.fields).namespace
        table = self.key_values.table.get(namespace)
        if table is not None:
            return _body(request, b.KVTable(table))
        return request.response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")

    def _update_settings(self, connection: Connection, request: Command) -> Answer:
        text = _text(request)
        try:
            self.settings.update(text)
        except Refused as err:
            return request.response(ResponseCode.NO_PERMISSION, str(err))
        log.info("%s changes the settings", connection.peer)
        return request.response()

    def _get_settings(self, connection: Connection, request: Command) -> Answer:
        return request.response(body=self.settings.text(self._fixed()).encode())

    def _get_settings_named(self, connection: Connection, request: Command) -> Answer:
        return request.response(body=self.settings.text(self._fixed(), _read(b.ConfigKeys, request).keys).encode())

    def _fixed(self) -> dict[str, str]:
        return {"configBlackList": ";".join(FIXED), **self.fixed}


def _registration(request: Command, who: n.RegisterBroker) -> tuple[b.TopicTable, list[str] | None]:
    """Topics and filter servers of a registration.

    Raises:
        FormatError: the body does not hold what is declared.
    """
    if not request.body:
        return b.TopicTable(), []
    if request.version < VERSION_3_0_11:
        return read_body(b.TopicTable, request.body), None
    if _is_compressed(request, who):
        body = registration.read(request.body, mappings=request.version >= VERSION_5_0_0)
    else:
        body = read_body(b.RegisterBrokerBody, request.body)
    return body.topic_config_serialize_wrapper, body.filter_server_list


def _is_compressed(request: Command, who: n.RegisterBroker) -> bool:
    # brokers of 5.3.3 with compressedRegister send a compressed body and say that it is not
    return who.compressed or request.body[:1] == _ZLIB


def _read(declared: type[T], request: Command) -> T:
    _check_size(request)
    return read_body(declared, request.body)


def _text(request: Command) -> str:
    _check_size(request)
    try:
        return request.body.decode()
    except UnicodeDecodeError as err:
        raise BadText(err.start, "settings that are not UTF-8") from None


def _check_size(request: Command) -> None:
    if len(request.body) > _LARGEST:
        raise Refused(f"a body of {len(request.body)} bytes; {_LARGEST} are allowed")


def _header(request: Command, header: Declared, **more: Any) -> Command:
    return request.response(fields=to_fields(header), **more)


def _body(request: Command, body: Declared) -> Command:
    return request.response(body=body_of(body))


def _disabled(request: Command) -> Command:
    return request.response(ResponseCode.SYSTEM_ERROR, "disable")


def _shown(*names: str) -> str:
    """Names that came over the wire, for a log: of one line, and not too long."""
    return " ".join(ascii(name[:100]) if not name.isprintable() else name[:100] for name in names)
