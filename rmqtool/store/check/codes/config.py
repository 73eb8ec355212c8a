"""Codes of config files and of the offsets in them."""

from dataclasses import replace

from rmqtool.store.check.advice.steps import MEND, NOTHING
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind
from rmqtool.words import command_line

ALL = (
    kind(
        "config-broken",
        ERROR,
        "a config file cannot be read",
        "The file is empty, truncated, not JSON as brokers write it, or lacks what it should contain.",
        "The power failed or the disk was full while the file was being written, or it was edited by hand.",
        "The broker reads the .bak file, which is the previous version. If that is broken too, it does not start; if "
        "there is none, it starts with an empty table.",
        MEND,
    ),
    kind(
        "config-bak-broken",
        INFO,
        "the previous version of a config file cannot be read",
        "The file itself is good, but its .bak is not.",
        "The power failed or the disk was full while it was written.",
        "The broker is not affected as long as the file itself is good.",
        NOTHING,
    ),
    kind(
        "config-missing",
        WARNING,
        "a config file is missing, but its .bak is there",
        "A broker deletes the old file before it renames the new one. In between there is no file.",
        "The broker was killed at that moment.",
        "The broker reads the .bak file.",
        MEND,
    ),
    kind(
        "config-tmp",
        INFO,
        "an unfinished config file",
        "Brokers up to 5.0 write NAME.tmp first and then rename it.",
        "The broker was killed before it renamed the file.",
        "The broker overwrites it.",
        NOTHING,
    ),
    kind(
        "topic-unknown",
        WARNING,
        "a topic with messages that is not in topics.json",
        "There are queues with messages of this topic, but topics.json does not name it.",
        "topics.json was lost or is older than the messages, or the topic was deleted.",
        "Clients find no route to the topic. A 5.x broker deletes its queues after some time.",
        replace(MEND, does=f"{MEND.does}; while the broker runs, {command_line('topic', 'create')} does it"),
    ),
    kind(
        "topics-missing",
        WARNING,
        "messages, but no topics.json",
        "There are queues with messages, but neither topics.json nor its .bak. Without subscriptionGroup.json and "
        "consumerOffset.json, too, no broker has run on the store yet, and this is only an info.",
        "The file was lost, or append, import or salvage created the store from one that had none.",
        "Clients find no route to these topics until they are recreated, and producers that may create topics get "
        "queues by the broker's defaults. When served, the store has the topics that its queues show.",
        replace(MEND, does=f"{MEND.does}; while the broker runs, {command_line('topic', 'create')} does it"),
    ),
    kind(
        "topic-deleted",
        INFO,
        "messages of a topic that was deleted",
        "The log has messages of this topic. It has no queues, and topics.json, which was changed after them, does not "
        "name it.",
        "The topic was deleted (mqadmin deleteTopic). Its messages stay in the log until its files expire.",
        "Consumers cannot get them. They expire with the log files that they are in.",
        NOTHING,
    ),
    kind(
        "topic-remade",
        INFO,
        "messages from before their topic was deleted and recreated",
        "The log has messages of this topic that were stored before the numbering of its queues restarted at 0. No "
        "queue has them.",
        "The topic was deleted and recreated (mqadmin deleteTopic, updateTopic). Its earlier messages stay in the log "
        "until its files expire.",
        "Consumers cannot get them. They expire with the log files that they are in.",
        NOTHING,
    ),
    kind(
        "queue-unread",
        WARNING,
        "a queue that consumers do not read",
        "The queue has messages, but its id is not below the number of read queues in topics.json.",
        "The number of the topic's queues was reduced.",
        "Consumers do not read this queue.",
        f"increase readQueueNums ({command_line('topic', 'update')}) if these messages are needed",
    ),
    kind(
        "group-unknown",
        INFO,
        "a group with offsets that is not in subscriptionGroup.json",
        "consumerOffset.json names a group that subscriptionGroup.json does not.",
        "The group was deleted, or the two files are from different times.",
        "The broker recreates the group when a consumer connects (autoCreateSubscriptionGroup).",
        NOTHING,
    ),
    kind(
        "offset-ahead",
        WARNING,
        "a consumer offset is beyond the end of its queue",
        "According to its offset, the group has consumed messages that the queue does not have.",
        "The log or the queue lost its end, or consumerOffset.json is from another copy of the store.",
        "The group gets nothing until the queue has grown up to the offset, or the broker sets the group back to the "
        "end or the beginning of the queue.",
        replace(MEND, does=f"{MEND.does}; while the broker runs, {command_line('group', 'reset')} does it"),
    ),
    kind(
        "offset-expired",
        INFO,
        "a consumer offset is before the beginning of its queue",
        "Messages that the group had not consumed are gone.",
        "They expired before they were consumed.",
        "The group continues at the beginning of the queue.",
        NOTHING,
    ),
    kind(
        "delay-offset-ahead",
        WARNING,
        "the delay offset of a level is beyond the end of its queue",
        "According to delayOffset.json, the broker has delivered messages that the queue does not have.",
        "The log lost its end in a crash, or delayOffset.json is from another copy of the store.",
        "New delayed messages of this level are not delivered until the queue has grown up to the offset.",
        MEND,
    ),
    kind(
        "delay-offset-lost",
        WARNING,
        "a delay level with messages has no delay offset",
        "delayOffset.json does not state how far the level was delivered. Copies of its messages in the log show that "
        "some were.",
        "The file was lost, or the broker was killed before it was written.",
        "The broker delivers all delayed messages of this level that are still in the queue once more.",
        MEND,
    ),
    kind(
        "conf-size",
        ERROR,
        "the broker's configuration sets a file length other than the store's",
        "The file given with --broker-conf states, or by its silence implies, a length that differs from that of the "
        "store's files.",
        "A name that is misspelt or of another release, a setting that was left out when the file was copied, or the "
        "configuration of another broker.",
        "A broker uses its default for what its file does not state, and does not load files of a different length: "
        "4.9.8 exits with code 253. Index files it reads at the wrong positions instead.",
        "set the length that the files have, in the file that the broker is started with (mqbroker -c)",
    ),
    kind(
        "conf-store-type",
        ERROR,
        "the broker's configuration keeps queues elsewhere than this store does",
        "By the file given with --broker-conf a broker keeps its queues in files, and this store has them in RocksDB, "
        "or the reverse (storeType).",
        "The line storeType was left out when the file was copied, is misspelt, or was added to an old store.",
        "The broker does not read the queues that are there.",
        "set storeType as the store has it, or convert the store",
    ),
    kind(
        "conf-unknown",
        WARNING,
        "a setting that no broker of this release has",
        "The file given with --broker-conf has a name that brokers do not read.",
        "A misspelt name, or a setting of another program or of an older release: up to 4.4 it was "
        "mapedFileSizeCommitLog, with one p.",
        "The broker silently ignores it, and uses its default.",
        "write the name as this release spells it, or remove the line",
    ),
    kind(
        "conf-release",
        INFO,
        "a setting that only another release has",
        "The file given with --broker-conf has a name that brokers of 5.3 read and those of 4.9 do not, or the "
        "reverse.",
        "The file was written for another release.",
        "The broker silently ignores it.",
        NOTHING,
    ),
    kind(
        "conf-value",
        WARNING,
        "a setting that a broker reads as something else",
        "A broker cannot read this value for the setting: a number followed by blanks, with a unit or out of range, a "
        "role or a way to flush that does not exist, or something other than true or false for a switch.",
        "A slip while the file was being edited.",
        "The broker silently ignores the value, and uses its default; a switch that is not true is false.",
        "write a value that a broker reads",
    ),
)
