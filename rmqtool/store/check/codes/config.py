"""Codes of config files and of the offsets in them."""

from dataclasses import replace

from rmqtool.store.check.advice.steps import MEND, NOTHING
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

ALL = (
    kind(
        "config-broken",
        ERROR,
        "a config file cannot be read",
        "Empty, cut, not JSON as brokers write it, or not of this file's shape.",
        "Power cut or full disk while it was written; edited by hand.",
        "It reads the .bak, the generation before. Where that is broken too it does not start; where there is none it "
        "starts with an empty table.",
        MEND,
    ),
    kind(
        "config-bak-broken",
        INFO,
        "the generation before of a config file cannot be read",
        "The file itself is good; its .bak is not.",
        "Power cut or full disk while it was written.",
        "Nothing, as long as the file itself is good.",
        NOTHING,
    ),
    kind(
        "config-missing",
        WARNING,
        "a config file is gone, and its .bak is there",
        "Between deleting the old file and renaming the new one there is a moment without any.",
        "Killed in that moment.",
        "It reads the .bak.",
        MEND,
    ),
    kind(
        "config-tmp",
        INFO,
        "a half-written config file was left over",
        "Brokers up to 5.0 write NAME.tmp first and rename it.",
        "Killed before the rename.",
        "It overwrites it.",
        NOTHING,
    ),
    kind(
        "topic-unknown",
        WARNING,
        "a topic with messages that topics.json does not have",
        "Its queues hold messages, but no configuration names it.",
        "topics.json was lost or is older than the messages; the topic was deleted.",
        "Clients find no route to it; 5.x deletes its queues after a while.",
        replace(MEND, does=f"{MEND.does}; while the broker runs, mqadmin updateTopic does it"),
    ),
    kind(
        "queue-unread",
        INFO,
        "a queue id beyond the topic's read queues",
        "topics.json says fewer queues for reading than there are with messages.",
        "The topic was made smaller.",
        "Consumers do not read this queue.",
        "raise readQueueNums (mqadmin updateTopic) where its messages are wanted",
    ),
    kind(
        "group-unknown",
        INFO,
        "a group with offsets that subscriptionGroup.json does not have",
        "consumerOffset.json names a group that the other file does not.",
        "The group was deleted, or the files are of different age.",
        "It makes the group again when a consumer comes (autoCreateSubscriptionGroup).",
        NOTHING,
    ),
    kind(
        "offset-ahead",
        WARNING,
        "a consumer offset lies behind the end of its queue",
        "The group says it has consumed messages that the queue does not have.",
        "The log or queue lost its tail; consumerOffset.json is of another copy of the store.",
        "The group gets nothing until the queue has grown up to it, or is set back to the queue's end or beginning.",
        replace(MEND, does=f"{MEND.does}; while the broker runs, mqadmin resetOffsetByTime does it"),
    ),
    kind(
        "offset-expired",
        INFO,
        "a consumer offset lies before the beginning of its queue",
        "Messages that the group had not consumed are gone.",
        "They expired before they were consumed.",
        "The group goes on at the queue's beginning.",
        NOTHING,
    ),
    kind(
        "delay-offset-ahead",
        WARNING,
        "the delay offset of a level lies behind the end of its queue",
        "delayOffset.json says that messages were delivered which the queue does not have.",
        "The log lost its tail after a crash; delayOffset.json is of another copy of the store.",
        "New delayed messages of this level are not delivered until the queue has grown up to the offset.",
        MEND,
    ),
    kind(
        "delay-offset-lost",
        WARNING,
        "no delay offset for a level that has messages",
        "delayOffset.json does not say how far the level was delivered, though copies of its messages in the log show "
        "that it was.",
        "The file was lost, or the broker was killed before it was written.",
        "All delayed messages of this level that are still in the queue are delivered again.",
        MEND,
    ),
)
