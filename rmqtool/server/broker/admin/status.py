"""Requests for the state of a broker: progress of groups, who is connected, counts, settings.

Source: broker.processor.AdminBrokerProcessor (4.9.8, 5.3.3); remoting-protocol 10.3, 10.4.
"""

import os
import re

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
from formats.remoting.shapes import ClientConnection as WireConnection
from formats.remoting.shapes import MessageQueue, OffsetWrapper, TopicOffset
from formats.topics import SCHEDULE, TRACE
from rmqtool.rules.releases import V5_3
from rmqtool.server.access import rights
from rmqtool.server.broker.context import counts
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.context.clients import Client
from rmqtool.server.broker.context.disk_use import share_used
from rmqtool.server.dispatch.table import Call, handles

_DAY = 86_400_000
# names of settings whose values are hidden (BrokerConfig, AuthConfig: innerClientAuthenticationCredentials,
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
_NO_BUFFERS = (1 << 31) - 1  # what a broker without a transient store pool reports
_TIMER = ("timerCongestNum", "timerOffsetBehind", "timerReadBehind")
_TIMER_RATES = ("timerDequeueTps", "timerEnqueueTps")


class Status:
    """Requests that only read.

    Args:
        checks_accounts: whether there is access control.
    """

    def __init__(self, context: BrokerContext, *, checks_accounts: bool = False) -> None:
        self._context, self._checks_accounts = context, checks_accounts
        self._started = context.clock()

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._context.settings.name, queue_id)

    # -- progress -----------------------------------------------------------------------------------------------------

    @handles(C.GET_TOPIC_STATS_INFO, right=rights.use_topic)
    def show_topic_stats(self, call: Call[h.Topic, None]) -> Command:
        """Request 202."""
        topic = call.header.topic
        config = self._context.state.topic(topic)
        if config is None:
            raise Failed(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        reading, table = self._context.reading, {}
        for queue_id in range(max(config.write_queue_nums, config.read_queue_nums)):
            low, high = max(reading.min_offset(topic, queue_id), 0), max(reading.max_offset(topic, queue_id), 0)
            last = reading.store_time(topic, queue_id, high - 1) if high > 0 else 0
            table[self._queue(topic, queue_id)] = TopicOffset(low, high, last)
        return call.answer(body=b.TopicStats(table))

    @handles(C.GET_CONSUME_STATS, right=rights.consume)
    def show_consume_stats(self, call: Call[h.ConsumerGroup, None]) -> Command:
        """Request 208."""
        header = call.header
        return call.answer(body=self._progress(header.consumer_group, header.topic or None))

    def _progress(self, group: str, only: str | None = None) -> b.ConsumeStats:
        context = self._context
        topics = {only} if only else context.state.topics_of(group)
        online = context.clients.consumers.get(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        rate = 0.0
        for topic in sorted(topics):
            config = context.state.topic(topic)
            if config is None or (only is None and online is not None and topic not in online.subscriptions):
                continue
            nothing = -1 if topic in context.static_topics.mappings else 0
            for queue_id in range(config.read_queue_nums):
                high = max(context.reading.max_offset(topic, queue_id), 0)
                known = context.state.offset(topic, group, queue_id)
                offset = nothing if known is None else max(known, 0)
                last = max(context.reading.store_time(topic, queue_id, offset - 1), 0) if offset > 0 else 0
                pulled_to = max(offset, context.pulled.get((topic, group, queue_id), 0))
                pulled = pulled_to if context.release.is_5 else None
                table[self._queue(topic, queue_id)] = OffsetWrapper(high, offset, last, pulled)
            rate += context.counts.rate(counts.GROUP_GET, f"{topic}@{group}")
        return b.ConsumeStats(table, rate)

    @handles(C.GET_BROKER_CONSUME_STATS)
    def list_consume_stats(self, call: Call[None, None]) -> Command:
        """Request 317."""
        context, total = self._context, 0
        rows: list[Value] = []
        for group in context.state.groups:
            progress = [self._progress(group, topic) for topic in sorted(context.state.topics_of(group))]
            if progress := [entry for entry in progress if entry.offset_table]:
                total += sum(
                    w.broker_offset - w.consumer_offset for entry in progress for w in entry.offset_table.values()
                )
                rows.append({group: list[Value](map(to_json, progress))})
        body = dumps({"brokerAddr": context.settings.address, "consumeStatsList": rows, "totalDiff": total}, BODY)
        return call.answer(body=body)

    @handles(C.QUERY_TOPIC_CONSUME_BY_WHO, right=rights.use_topic)
    def list_groups_of_topic(self, call: Call[h.Topic, None]) -> Command:
        """Request 300."""
        topic = call.header.topic
        context = self._context
        online = {name for name, group in context.clients.consumers.items() if topic in group.subscriptions}
        stored = {group for name, group, _queue in context.state.offsets if name == topic}
        return call.answer(body=b.GroupList(sorted(online | stored)))

    @handles(C.QUERY_TOPICS_BY_CONSUMER, right=rights.consume, since=V5_3)
    def list_topics_of_group(self, call: Call[a.OneGroup, None]) -> Command:
        """Request 343: topics that it has offsets in."""
        name = call.header.group
        return call.answer(
            body=b.TopicList(sorted(self._context.state.topics_of(name)), self._context.settings.address)
        )

    @handles(C.QUERY_SUBSCRIPTION_BY_CONSUMER, right=rights.consume, since=V5_3)
    def show_subscription(self, call: Call[a.GroupOfTopic, None]) -> Command:
        """Request 345: the subscription of a group's online members to a topic."""
        header = call.header
        group = self._context.clients.consumers.get(header.group)
        subscription = None if group is None else group.subscriptions.get(header.topic)
        return call.answer(body=a.GroupSubscription(subscription, header.group, header.topic))

    @handles(C.QUERY_CONSUME_TIME_SPAN, right=rights.consume)
    def show_time_spans(self, call: Call[a.TimeSpan, None]) -> Command:
        """Request 303."""
        header = call.header
        context, reading, rows = self._context, self._context.reading, []
        config = context.state.topic(header.topic)
        if config is None:
            raise Failed(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        for queue_id in range(config.write_queue_nums):
            low, high = reading.min_offset(header.topic, queue_id), reading.max_offset(header.topic, queue_id)
            first = reading.store_time(header.topic, queue_id, low)
            last = reading.store_time(header.topic, queue_id, high - 1) if high else -1
            offset = context.state.offset(header.topic, header.group, queue_id)
            consumed = reading.store_time(header.topic, queue_id, offset - 1) if offset else first
            behind = context.clock() - consumed if consumed > 0 and (offset or 0) < high else 0
            rows.append(a.QueueTimeSpan(self._queue(header.topic, queue_id), first, last, consumed, behind))
        return call.answer(body=a.QueueTimeSpans(rows))

    # -- clients ------------------------------------------------------------------------------------------------------

    @handles(C.GET_CONSUMER_CONNECTION_LIST, right=rights.consume)
    def list_consumers(self, call: Call[h.ConsumerGroup, None]) -> Command:
        """Request 203."""
        name = call.header.consumer_group
        group = self._context.clients.consumers.get(name)
        if group is None:
            raise Failed(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = b.ConsumerConnection(
            [_wire_client(client) for client in group.clients.values()],
            dict(group.subscriptions),
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        return call.answer(body=body)

    @handles(C.GET_PRODUCER_CONNECTION_LIST, right=rights.need_nothing)
    def list_producers(self, call: Call[h.Producers, None]) -> Command:
        """Request 204."""
        name = call.header.producer_group
        group = self._context.clients.producers.get(name)
        if group is None:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return call.answer(body=b.ProducerConnection([_wire_client(client) for client in group.values()]))

    @handles(C.GET_ALL_PRODUCER_INFO)
    def list_all_producers(self, call: Call[None, None]) -> Command:
        """Request 328."""
        context = self._context
        table = {}
        for name, group in context.clients.producers.items():
            table[name] = [
                a.ProducerInfo(
                    client_id=client.client_id,
                    language=_language(client),
                    last_update_timestamp=context.clock() - int((context.now() - client.seen) * 1000),
                    remote_ip=client.connection.peer,
                    version=client.version,
                )
                for client in group.values()
            ]
        return call.answer(body=a.ProducerTable(table))

    # -- the broker itself --------------------------------------------------------------------------------------------

    @handles(C.VIEW_BROKER_STATS_DATA)
    def show_stats(self, call: Call[h.Stats, None]) -> Command:
        """Request 315."""
        header = call.header
        stats = self._context.counts.stats(header.stats_name, header.stats_key)
        if stats is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        return call.answer(body=stats)

    @handles(C.GET_BROKER_CONFIG)
    def show_config(self, call: Call[None, None]) -> Command:
        """Request 26: the settings in the broker's file, and the defaults."""
        settings, files = self._context.settings, self._context.reading.log.segments.files
        values = {
            **_DEFAULTS,
            **({"mappedFileSizeCommitLog": str(files[0].size)} if files else {}),
            "maxMessageSize": str(settings.max_message_size),
            **self._context.store.layout.conf.values,
            **settings.changeable,
            "aclEnable": str(self._checks_accounts).lower(),
            "brokerName": settings.name,
            "brokerClusterName": settings.cluster,
            "brokerId": str(settings.broker_id),
            "listenPort": settings.address.rpartition(":")[2],
            "storePathRootDir": self._context.store.layout.root,
        }
        # a real broker shows these to everybody
        shown = {name: "******" if _SECRET.search(name) else value for name, value in values.items()}
        text = "".join(f"{name}={value}\n" for name, value in sorted(shown.items()))
        version = dumps({"counter": 0, "timestamp": self._started}, BODY).decode()
        return call.answer(h.ConfigVersion(version=version), text.encode())

    @handles(C.GET_BROKER_RUNTIME_INFO)
    def show_runtime(self, call: Call[None, None]) -> Command:
        """Request 28."""
        return call.answer(body=b.KVTable(self.runtime_table()))

    def runtime_table(self) -> dict[str, str]:
        """The state of the broker, under a real broker's names."""
        context, settings = self._context, self._context.settings
        now, reading = context.clock(), context.reading
        low = max(reading.log.min_offset, 0)
        first = reading.message(low)
        path = context.store.layout.commit_log_paths[0]
        ratio, capacity = _disk(path)
        put = f"{context.counts.rate(counts.BROKER_PUT, settings.cluster):.2f}"
        get_rate = f"{context.counts.rate(counts.BROKER_GET, settings.cluster):.2f}"
        total_put = str(context.counts.sum(counts.BROKER_PUT, settings.cluster))
        put_size = context.counts.sum(counts.BROKER_PUT_SIZE, settings.cluster)
        total_got = str(context.counts.sum(counts.BROKER_GET, settings.cluster))
        runtime = now - self._started
        spent = f"{runtime // _DAY} days, {runtime // 3_600_000 % 24} hours, {runtime // 60_000 % 60} minutes"
        table = {
            "brokerVersionDesc": context.release.full_name,
            "bootTimestamp": str(self._started),
            "startAcceptSendRequestTimeStamp": "0",
            "runtime": f"[ {spent}, {runtime // 1000 % 60} seconds ]",
            "earliestMessageTimeStamp": str(first.record.store_timestamp if first is not None else -1),
            "commitLogMinOffset": str(low),
            "commitLogMaxOffset": str(reading.message_end),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{path}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": capacity,
            "dispatchBehindBytes": "0",
            "dispatchMaxBuffer": "0",
            "remainHowManyDataToFlush": "0 B",
            "pageCacheLockTimeMills": "0",
            "putTps": f"{put} {put} {put}",
            "getTotalTps": f"{get_rate} {get_rate} {get_rate}",
            "getFoundTps": f"{get_rate} {get_rate} {get_rate}",
            "getTransferredTps" if context.release.is_5 else "getTransferedTps": f"{get_rate} {get_rate} {get_rate}",
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
        if context.release.numbers_version:
            table["brokerVersion"] = str(context.release.mq_version)
        for name in ("Put", "Get"):
            table[f"msg{name}TotalYesterdayMorning"] = table[f"msg{name}TotalTodayMorning"] = "0"
        pools = {"send": 10_000, "pull": 100_000, "query": 20_000}
        if context.release.is_5:
            table |= {"brokerActive": "true", **dict.fromkeys(_TIMER, "0"), **dict.fromkeys(_TIMER_RATES, "0.0")}
            pools |= {"ack": 100_000, "litePull": 100_000}
        for name, most in pools.items():
            table[f"{name}ThreadPoolQueueSize"] = table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
            table[f"{name}ThreadPoolQueueCapacity"] = str(most)
        for level, offset in sorted(context.state.delay_offsets.items()):
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{reading.max_offset(SCHEDULE, level - 1)}"
        return table


def _wire_client(client: Client) -> WireConnection:
    return WireConnection(client.client_id, client.connection.peer, _language(client), client.version)


def _language(client: Client) -> str:
    return (Language.OTHER if client.language is None else client.language).name  # that of Java is 0


def _disk(path: str) -> tuple[str, str]:
    """(used share, size) of the file system, formatted as by a broker (common.UtilAll, store.CommitLog)."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return "-1", ""
    total, free = (count * disk.f_frsize / (1 << 30) for count in (disk.f_blocks, disk.f_bfree))
    return str(share_used(path)), f"Total : {total:.1f} GiB, Free : {free:.1f} GiB."
