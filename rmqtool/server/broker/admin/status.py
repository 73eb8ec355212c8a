"""What a broker tells of itself: progress of groups, who is connected, counts, settings.

Source: broker.processor.AdminBrokerProcessor (4.9.8, 5.3.3); remoting-protocol 10.3, 10.4.
"""

import os
import re
from collections.abc import Callable

from formats.fastjson.declare import to_json
from formats.fastjson.dialects import BODY
from formats.fastjson.values import Value
from formats.fastjson.write import dumps
from formats.remoting import admin as a
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import Language, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from formats.remoting.shapes import Connection as WireConnection
from formats.remoting.shapes import MessageQueue, OffsetWrapper, TopicOffset
from formats.topics import SCHEDULE, TRACE
from rmqtool.remoting.connection import Connection
from rmqtool.server.broker.known import counts
from rmqtool.server.broker.known.answers import Failed, answer, header_of
from rmqtool.server.broker.known.clients import Client
from rmqtool.server.broker.known.core import Core
from rmqtool.server.broker.known.disk import used

Handle = Callable[[Connection, Command], Command | None]
_DAY = 86_400_000
# names of settings whose values are not told (BrokerConfig, AuthConfig: innerClientAuthenticationCredentials,
# initAuthenticationUser with a password, metricsGrpcExporterHeader with a token; keys of an object store)
_SECRET = re.compile("credential|secret|password|token|accesskey|authenticationuser|exporterheader", re.IGNORECASE)
# settings that tools ask every broker for (tools.command.export.ExportConfigsCommand), as it has them by itself
_DEFAULTS = {
    "brokerRole": "ASYNC_MASTER",
    "fileReservedTime": "72",
    "filterServerNums": "0",
    "flushDiskType": "ASYNC_FLUSH",
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "msgTraceTopicName": TRACE,
    "slaveReadEnable": "false",
    "traceTopicEnable": "false",
    "useTLS": "false",
    "autoCreateSubscriptionGroup": "true",
}
_NO_BUFFERS = (1 << 31) - 1  # what a broker without transient buffers says
_TIMER = ("timerCongestNum", "timerOffsetBehind", "timerReadBehind")
_TIMER_RATES = ("timerDequeueTps", "timerEnqueueTps")


class Status:
    """Requests that only ask."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._started = core.clock()

    def handlers(self) -> dict[int, Handle]:
        """By request code."""
        of_5: dict[int, Handle] = {
            C.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            C.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }
        return {
            **(of_5 if self._core.release.is_5 else {}),
            C.GET_TOPIC_STATS_INFO: self.topic_stats,
            C.GET_CONSUME_STATS: self.consume_stats,
            C.GET_BROKER_CONSUME_STATS: self.all_consume_stats,
            C.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            C.GET_PRODUCER_CONNECTION_LIST: self.producers,
            C.GET_ALL_PRODUCER_INFO: self.all_producers,
            C.QUERY_TOPIC_CONSUME_BY_WHO: self.who_consumes,
            C.QUERY_CONSUME_TIME_SPAN: self.time_spans,
            C.VIEW_BROKER_STATS_DATA: self.stats,
            C.GET_BROKER_RUNTIME_INFO: self.runtime,
            C.GET_BROKER_CONFIG: self.config,
        }

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._core.settings.name, queue_id)

    # -- progress -----------------------------------------------------------------------------------------------------

    def topic_stats(self, _connection: Connection, request: Command) -> Command:
        """Request 202."""
        topic = header_of(h.Topic, request).topic
        config = self._core.state.topic(topic)
        if config is None:
            raise Failed(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        reading, table = self._core.reading, {}
        for queue_id in range(max(config.write_queue_nums, config.read_queue_nums)):
            low, high = max(reading.min_offset(topic, queue_id), 0), max(reading.max_offset(topic, queue_id), 0)
            last = reading.store_time(topic, queue_id, high - 1) if high > 0 else 0
            table[self._queue(topic, queue_id)] = TopicOffset(low, high, last)
        return answer(request, body=b.TopicStats(table))

    def consume_stats(self, _connection: Connection, request: Command) -> Command:
        """Request 208."""
        header = header_of(h.Group, request)
        return answer(request, body=self._progress(header.consumer_group, header.topic or None))

    def _progress(self, group: str, only: str | None = None) -> b.ConsumeStats:
        core = self._core
        topics = {only} if only else {topic for topic, name, _queue in core.state.offsets if name == group}
        online = core.clients.consumers.get(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        rate = 0.0
        for topic in sorted(topics):
            config = core.state.topic(topic)
            if config is None or (only is None and online is not None and topic not in online.subscriptions):
                continue
            for queue_id in range(config.read_queue_nums):
                high = max(core.reading.max_offset(topic, queue_id), 0)
                offset = max(core.state.offset(topic, group, queue_id) or 0, 0)
                last = max(core.reading.store_time(topic, queue_id, offset - 1), 0) if offset else 0
                given = max(offset, core.pulled.get((topic, group, queue_id), 0))
                pulled = given if core.release.is_5 else None
                table[self._queue(topic, queue_id)] = OffsetWrapper(high, offset, last, pulled)
            rate += core.counts.rate(counts.GROUP_GET, f"{topic}@{group}")
        return b.ConsumeStats(table, rate)

    def all_consume_stats(self, _connection: Connection, request: Command) -> Command:
        """Request 317."""
        core, total = self._core, 0
        rows: list[Value] = []
        for group in core.state.groups:
            topics = {topic for topic, name, _queue in core.state.offsets if name == group}
            found = [self._progress(group, topic) for topic in sorted(topics)]
            if found := [one for one in found if one.offset_table]:
                total += sum(w.broker_offset - w.consumer_offset for one in found for w in one.offset_table.values())
                rows.append({group: list[Value](map(to_json, found))})
        body = dumps({"brokerAddr": core.settings.address, "consumeStatsList": rows, "totalDiff": total}, BODY)
        return answer(request, body=body)

    def who_consumes(self, _connection: Connection, request: Command) -> Command:
        """Request 300."""
        topic = header_of(h.Topic, request).topic
        core = self._core
        online = {name for name, group in core.clients.consumers.items() if topic in group.subscriptions}
        stored = {group for name, group, _queue in core.state.offsets if name == topic}
        return answer(request, body=b.GroupList(sorted(online | stored)))

    def topics_of_group(self, _connection: Connection, request: Command) -> Command:
        """Request 343: those that it has offsets of."""
        name = header_of(a.OneGroup, request).group
        topics = {topic for topic, group, _queue in self._core.state.offsets if group == name}
        return answer(request, body=b.TopicList(sorted(topics), self._core.settings.address))

    def subscription(self, _connection: Connection, request: Command) -> Command:
        """Request 345: what the members of a group that are online want of a topic."""
        header = header_of(a.GroupOfTopic, request)
        group = self._core.clients.consumers.get(header.group)
        found = None if group is None else group.subscriptions.get(header.topic)
        return answer(request, body=a.GroupSubscription(found, header.group, header.topic))

    def time_spans(self, _connection: Connection, request: Command) -> Command:
        """Request 303."""
        header = header_of(a.TimeSpan, request)
        core, reading, rows = self._core, self._core.reading, []
        config = core.state.topic(header.topic)
        if config is None:
            raise Failed(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        for queue_id in range(config.write_queue_nums):
            low, high = reading.min_offset(header.topic, queue_id), reading.max_offset(header.topic, queue_id)
            first = reading.store_time(header.topic, queue_id, low)
            last = reading.store_time(header.topic, queue_id, high - 1) if high else -1
            offset = core.state.offset(header.topic, header.group, queue_id)
            consumed = reading.store_time(header.topic, queue_id, offset - 1) if offset else first
            behind = core.clock() - consumed if consumed > 0 and (offset or 0) < high else 0
            rows.append(a.QueueTimeSpan(self._queue(header.topic, queue_id), first, last, consumed, behind))
        return answer(request, body=a.QueueTimeSpans(rows))

    # -- clients ------------------------------------------------------------------------------------------------------

    def consumers(self, _connection: Connection, request: Command) -> Command:
        """Request 203."""
        name = header_of(h.Group, request).consumer_group
        group = self._core.clients.consumers.get(name)
        if group is None:
            raise Failed(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = b.ConsumerConnection(
            [_wire_client(client) for client in group.clients.values()],
            dict(group.subscriptions),
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        return answer(request, body=body)

    def producers(self, _connection: Connection, request: Command) -> Command:
        """Request 204."""
        name = header_of(h.Producers, request).producer_group
        group = self._core.clients.producers.get(name)
        if group is None:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return answer(request, body=b.ProducerConnection([_wire_client(client) for client in group.values()]))

    def all_producers(self, _connection: Connection, request: Command) -> Command:
        """Request 328."""
        core = self._core
        table = {}
        for name, group in core.clients.producers.items():
            table[name] = [
                a.ProducerInfo(
                    client.client_id,
                    _language(client),
                    core.clock() - int((core.now() - client.seen) * 1000),
                    client.connection.peer,
                    client.version,
                )
                for client in group.values()
            ]
        return answer(request, body=a.ProducerTable(table))

    # -- the broker itself --------------------------------------------------------------------------------------------

    def stats(self, _connection: Connection, request: Command) -> Command:
        """Request 315."""
        header = header_of(h.Stats, request)
        found = self._core.counts.stats(header.stats_name, header.stats_key)
        if found is None:
            words = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise Failed(ResponseCode.SYSTEM_ERROR, words)
        return answer(request, body=found)

    def config(self, _connection: Connection, request: Command) -> Command:
        """Request 26: what the broker's file says, and what this broker is."""
        settings = self._core.settings
        values = {
            **_DEFAULTS,
            "maxMessageSize": str(settings.max_message_size),
            **self._core.store.layout.conf.values,
            **settings.live,
            "brokerName": settings.name,
            "brokerClusterName": settings.cluster,
            "brokerId": str(settings.broker_id),
            "listenPort": settings.address.rpartition(":")[2],
            "storePathRootDir": self._core.store.layout.root,
        }
        # a real broker hands these to whoever asks
        shown = {name: "******" if _SECRET.search(name) else value for name, value in values.items()}
        text = "".join(f"{name}={value}\n" for name, value in sorted(shown.items()))
        version = dumps({"counter": 0, "timestamp": self._started}, BODY).decode()
        return answer(request, h.ConfigVersion(version=version), text.encode())

    def runtime(self, _connection: Connection, request: Command) -> Command:
        """Request 28."""
        return answer(request, body=b.KVTable(self.runtime_table()))

    def runtime_table(self) -> dict[str, str]:
        """What a broker says of itself, by the broker's own names."""
        core, settings = self._core, self._core.settings
        now, reading = core.clock(), core.reading
        low = max(reading.log.min_offset, 0)
        first = reading.message(low)
        path = core.store.layout.commit_log_paths[0]
        ratio, capacity = _disk(path)
        put = f"{core.counts.rate(counts.BROKER_PUT, settings.cluster):.2f}"
        got = f"{core.counts.rate(counts.BROKER_GET, settings.cluster):.2f}"
        total_put = str(core.counts.sum(counts.BROKER_PUT, settings.cluster))
        put_size = core.counts.sum(counts.BROKER_PUT_SIZE, settings.cluster)
        total_got = str(core.counts.sum(counts.BROKER_GET, settings.cluster))
        runtime = now - self._started
        spent = f"{runtime // _DAY} days, {runtime // 3_600_000 % 24} hours, {runtime // 60_000 % 60} minutes"
        table = {
            "brokerVersionDesc": core.release.full_name,
            "brokerVersion": str(core.release.mq_version),
            "bootTimestamp": str(self._started),
            "startAcceptSendRequestTimeStamp": "0",
            "runtime": f"[ {spent}, {runtime // 1000 % 60} seconds ]",
            "earliestMessageTimeStamp": str(first.record.store_timestamp if first is not None else -1),
            "commitLogMinOffset": str(low),
            "commitLogMaxOffset": str(reading.end),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{path}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": capacity,
            "dispatchBehindBytes": "0",
            "dispatchMaxBuffer": "0",
            "remainHowManyDataToFlush": "0 B",
            "pageCacheLockTimeMills": "0",
            "putTps": f"{put} {put} {put}",
            "getTotalTps": f"{got} {got} {got}",
            "getFoundTps": f"{got} {got} {got}",
            "getTransferredTps" if core.release.is_5 else "getTransferedTps": f"{got} {got} {got}",
            "getMissTps": "0.00 0.00 0.00",
            "putMessageTimesTotal": total_put,
            "putMessageSizeTotal": str(put_size),
            "putMessageFailedTimes": "0",
            "putMessageAverageSize": str(put_size / max(int(total_put), 1)),
            "putLatency99": "0.00",
            "putLatency999": "0.00",
            "remainTransientStoreBufferNumbs": str(_NO_BUFFERS),
            "putMessageEntireTimeMax": "0",
            "getMessageEntireTimeMax": "0",
            "putMessageDistributeTime": "null",
            "msgPutTotalTodayNow": total_put,
            "msgGetTotalTodayNow": total_got,
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "100000",
        }
        for name in ("Put", "Get"):
            table[f"msg{name}TotalYesterdayMorning"] = table[f"msg{name}TotalTodayMorning"] = "0"
        pools = {"send": 10_000, "pull": 100_000, "query": 20_000}
        if core.release.is_5:
            table |= {"brokerActive": "true", **dict.fromkeys(_TIMER, "0"), **dict.fromkeys(_TIMER_RATES, "0.0")}
            pools |= {"ack": 100_000, "litePull": 100_000}
        for name, most in pools.items():
            table[f"{name}ThreadPoolQueueSize"] = table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
            table[f"{name}ThreadPoolQueueCapacity"] = str(most)
        for level, offset in sorted(core.state.delay_offsets.items()):
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{reading.max_offset(SCHEDULE, level - 1)}"
        return table


def _wire_client(client: Client) -> WireConnection:
    return WireConnection(client.client_id, client.connection.peer, _language(client), client.version)


def _language(client: Client) -> str:
    return (Language.OTHER if client.language is None else client.language).name  # that of Java is 0


def _disk(path: str) -> tuple[str, str]:
    """Share of the file system that is used, and its size, as a broker says them (common.UtilAll, store.CommitLog)."""
    try:
        found = os.statvfs(path)
    except OSError:
        return "-1", ""
    total, free = (count * found.f_frsize / (1 << 30) for count in (found.f_blocks, found.f_bfree))
    return str(used(path)), f"Total : {total:.1f} GiB, Free : {free:.1f} GiB."
