"""Differences between RocketMQ releases: one object per release whose rules are implemented.

Each difference is a field with a descriptive name (``release.trailing_separator``), so supporting another release means
adding one object. Behaviour that all of 5.x shares (POP, administration responses) is selected with `is_5`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from formats import versions
from formats.remoting.codes import (
    VERSION_4_9_8,
    VERSION_5_3_3,
    VERSION_5_4_0,
    VERSION_5_5_0,
    VERSION_5_5_1,
    ResponseCode,
)
from formats.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE, SYSTEM_PREFIX
from formats.versions import Version


class Release(NamedTuple):
    """One release line; the rules are those of its last version.

    Attributes:
        version: the release line as used for config file formats.
        full_name: name of the version used as reference, as in ``MQVersion``.
        mq_version: its number in headers and heartbeats (``MQVersion.CURRENT_VERSION``).
        record_version: newest version of commit-log records that it reads and writes.
        trailing_separator: stored properties end with a separator (``MessageDecoder.messageProperties2String``).
        has_attributes: topics have attributes, and so there are batch queues and compaction.
        shares_batch_properties: each message of a batch that a client sends gets the properties of the batch, too, such
            as the region (``MessageExtEncoder``).
        indexes_tags: tags are added to the index as keys (``IndexService``).
        has_timer: messages can be delivered at an arbitrary time (``TimerMessageStore``).
        recalls_by_topic: the key that recalls a timer message is the topic followed by the unique key; if False, only
            with ``appendTopicForTimerDeleteKey`` (``TimerMessageStore.buildDeleteKey``).
        marks_flushed_queues: the checkpoint says up to which physical offset queues were flushed
            (``StoreCheckpoint.logicsPhysicalOffset``), and recovery goes by it.
        has_rocks_halves: brokers have further topics of half messages, used if RocksDB tracks open transactions.
        numbers_version: the state of a broker has the number of its version beside the name.
        knows_priorities: messages of a priority go to the queue of that number, and are popped from the highest on.
        knows_lite_topics: messages of a lite topic also get into its light queue.
        without_light: beginnings of topics of copies, which do not go into the light queues that their properties name;
            where there are any, messages that wait for their delay do not either (``MixAll.topicAllowsLMQ``).
        knows_wide_filters: SQL92 filters support CONTAINS, STARTSWITH and ENDSWITH.
        searches_lowest_offset: the first entry of a queue with an existing message is found by binary search in the
            first file; if False, by reading that file from its beginning (``ConsumeQueue.correctMinOffset``).
        finds_time_bounds: a lookup by time returns the first entry at or after it; if False, the nearest one.
        operation_separator: text after each queue offset in an operation message of transactions.
        transaction_check_interval: default of ``transactionCheckInterval``, ms.
        registration_timeout: default of ``registerBrokerTimeoutMills``, ms.
        drops_unused_stats: default of ``autoDeleteUnusedStats``: whether what was counted of a topic or a group is
            dropped when it is deleted.
        commits_real_queue: a committed message keeps the properties that name its queue while it is a half message
            (``EndTransactionProcessor.endMessageTransaction``).
        checks_immunity: a producer can end a transaction only within the time given by the message.
        refuses_negative_blanks: recovery ends the log at an end-of-file blank with a negative size, instead of going on
            in the next file (``CommitLog.checkMessageAndReturnSize``).
        invalid_code: response code for requests with invalid values.
        no_topic_code: response code for an offset reset of a missing topic.
        extra_retries: how many retries beyond its limit an orderly consumer group makes before giving up a message.
        retry_codes: response codes after which a producer tries another queue.
        unavailable: pairs of (response time of a broker, period for which producers avoid the broker), ms.
        isolation: response time assumed for a failure, ms.
        keeps_isolation: a response does not shorten the period for which a broker is avoided.
    """

    version: Version
    full_name: str
    mq_version: int
    record_version: int
    trailing_separator: bool
    has_attributes: bool
    shares_batch_properties: bool
    indexes_tags: bool
    has_timer: bool
    recalls_by_topic: bool
    marks_flushed_queues: bool
    has_rocks_halves: bool
    numbers_version: bool
    knows_priorities: bool
    knows_lite_topics: bool
    without_light: tuple[str, ...]
    knows_wide_filters: bool
    searches_lowest_offset: bool
    finds_time_bounds: bool
    operation_separator: str
    transaction_check_interval: int
    registration_timeout: int
    drops_unused_stats: bool
    commits_real_queue: bool
    checks_immunity: bool
    refuses_negative_blanks: bool
    invalid_code: ResponseCode
    no_topic_code: ResponseCode
    extra_retries: int
    retry_codes: frozenset[int]
    unavailable: tuple[tuple[int, int], ...]
    isolation: int
    keeps_isolation: bool

    @property
    def name(self) -> str:
        """The name by which users select the release, such as ``5.3``."""
        return str(self.version)

    @property
    def full_version(self) -> str:
        """The version used as reference, such as ``5.3.3``."""
        return self.full_name.removeprefix("V").replace("_", ".")

    @property
    def is_5(self) -> bool:
        """Whether this is a 5.x release."""
        return self.version.major >= 5

    def fills_light_queues(self, topic: str) -> bool:
        """Whether messages of a topic also go into the light queues that their properties name."""
        return not self.without_light or (topic != SCHEDULE and not topic.startswith(self.without_light))

    def __str__(self) -> str:
        return self.name


_RETRY_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        204,  # NO_BUYER_ID
        205,  # NOT_IN_CURRENT_UNIT
    }
)

V4_9 = Release(
    version=versions.V4_9,
    full_name="V4_9_8",
    mq_version=VERSION_4_9_8,
    record_version=1,
    trailing_separator=False,
    has_attributes=False,
    shares_batch_properties=True,
    indexes_tags=False,
    has_timer=False,
    recalls_by_topic=False,
    marks_flushed_queues=False,
    has_rocks_halves=False,
    numbers_version=True,
    knows_priorities=False,
    knows_lite_topics=False,
    without_light=(),
    knows_wide_filters=False,
    searches_lowest_offset=False,
    finds_time_bounds=False,
    operation_separator="",
    transaction_check_interval=60_000,
    registration_timeout=6000,
    drops_unused_stats=False,
    commits_real_queue=True,
    checks_immunity=False,
    refuses_negative_blanks=False,
    invalid_code=ResponseCode.SYSTEM_ERROR,
    no_topic_code=ResponseCode.SYSTEM_ERROR,
    extra_retries=0,
    retry_codes=_RETRY_CODES,
    unavailable=(
        (50, 0), (100, 0), (550, 30_000), (1000, 60_000), (2000, 120_000), (3000, 180_000), (15_000, 600_000),
    ),
    isolation=30_000,
    keeps_isolation=False,
)  # fmt: skip

V5_3 = Release(
    version=versions.V5_3,
    full_name="V5_3_3",
    mq_version=VERSION_5_3_3,
    record_version=2,
    trailing_separator=True,
    has_attributes=True,
    shares_batch_properties=True,
    indexes_tags=False,
    has_timer=True,
    recalls_by_topic=True,
    marks_flushed_queues=False,
    has_rocks_halves=False,
    numbers_version=True,
    knows_priorities=False,
    knows_lite_topics=False,
    without_light=(RETRY_PREFIX, SYSTEM_PREFIX),
    knows_wide_filters=True,
    searches_lowest_offset=True,
    finds_time_bounds=True,
    operation_separator=",",
    transaction_check_interval=30_000,
    registration_timeout=24_000,
    drops_unused_stats=True,
    commits_real_queue=True,
    checks_immunity=True,
    refuses_negative_blanks=False,
    invalid_code=ResponseCode.INVALID_PARAMETER,
    no_topic_code=ResponseCode.TOPIC_NOT_EXIST,
    extra_retries=1,
    retry_codes=_RETRY_CODES | {ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY},
    unavailable=((50, 0), (100, 0), (550, 2000), (1800, 5000), (3000, 6000), (5000, 10_000), (15_000, 30_000)),
    isolation=10_000,
    keeps_isolation=True,
)

V5_4 = V5_3._replace(
    version=versions.V5_4,
    full_name="V5_4_0",
    mq_version=VERSION_5_4_0,
    shares_batch_properties=False,
    indexes_tags=True,
    recalls_by_topic=False,
    commits_real_queue=False,
    has_rocks_halves=True,
    numbers_version=False,
    knows_priorities=True,
)

V5_5 = V5_4._replace(
    version=versions.V5_5,
    full_name="V5_5_0",
    mq_version=VERSION_5_5_0,
    marks_flushed_queues=True,
    knows_lite_topics=True,
    without_light=(*V5_4.without_light, DLQ_PREFIX),
)

V5_5_1 = V5_5._replace(full_name="V5_5_1", mq_version=VERSION_5_5_1, refuses_negative_blanks=True)

RELEASES: Mapping[str, Release] = {release.name: release for release in (V4_9, V5_3, V5_4, V5_5)}
"""Releases by name, oldest first."""

LATER = (V5_5_1,)
"""Later releases of a line, selected by their full version alone: stores do not show which one wrote them."""

NEWEST = V5_5
"""The release of new stores and of the broker that serves them; clients of 4.9 and later work with it."""

CLIENT = V5_3
"""The Java client that ours follows by default: later ones have the same rules, and older brokers know its number."""


def release_named(text: str) -> Release:
    """Return the release for a line (``5.3``), a major version (``5``) or a full version (``5.3.3``, ``5.5.1``).

    ``5`` means 5.3, as it did before later releases had rules of their own.

    Raises:
        ValueError: no release has that name.
    """
    for release in (V5_3, *RELEASES.values(), *LATER):
        if text in (release.name, str(release.version.major), release.full_version):
            return release
    *others, last = RELEASES
    raise ValueError(f"{text}: give {', '.join(others)} or {last}")
