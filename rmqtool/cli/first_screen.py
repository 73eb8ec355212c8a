"""The first screen. It names every command, and marks those that write.

Emergencies come last: they are what a terminal still shows of a text that is longer than it.
"""

from rmqtool.version import __version__

VERSION_TEXT = f"rmqtool {__version__}"

TEXT = """\
Usage: rmqtool COMMAND [ARGS]...

  Inspect, query, recover and export Apache RocketMQ store directories, without
  a broker. Reading never writes into a store, not even a lock.
  Commands with a * change a store, or make one.

Look:
    info             Tell what a store is: version, sizes, topics, who holds it.
    check            Check a whole store, and tell what to do.
    explain          Explain a code of check, and what to do about it.
    trace            Tell the whole life of one message, copy by copy.
    topic            Topics and their queues (list, show, latest, unused).
    query-key        Find the messages of a topic by key, through the index.
    query-id         Find a message by its offset id or its unique id.
    query-offset     Read messages of a queue from a queue offset on.
    query-time       Find the queue offset for a store time.
    commitlog        Look into the commit log (dump, hexdump).
    consumequeue     Look into consume queues (dump).
    index            Look into index files (dump).
    checkpoint       Show up to when messages, queues and index are flushed.
    offsets          Show consumer offsets beside the queues they point into.
    config           Show the broker's config files, read as it reads them.
    manual           Read the manual: emergencies, commands, file formats.

Repair:
  * recover          Recover a store as a broker would, keeping what is cut.
  * salvage          Copy every intact message into a new store.
  * export           Write a store in RocksDB form anew in files.
  * rebuild          Build queues, index or checkpoint again, repair config.
  * undo             Put back what the last writing command replaced.
  * truncate         Cut the log at a message, queues and index too.
  * dispatch         Put messages that no queue has yet into queues and index.
  * clean            Remove expired commit-log files, and what points there.

Write:
  * init             Make an empty store.
  * append           Append messages to a store, given as NDJSON.
  * import           Make a store from messages in Parquet or NDJSON.
  * run              Deliver delays and retries, check transactions.

Serve:
  * serve            Serve a store to RocketMQ clients, as a broker does.
    namesrv          Run a name server for brokers and clients.

Live clusters:
    send             Send messages, given as NDJSON or lines.
    consume          Show messages of a topic; --ack consumes them.
    replay           Send the messages of a store, each once.
  * mirror           Copy topics into a store, each message once.

Consumers:
  * group            Groups (list, lag, inflight, offsets, reset, clone, diff).
    retry            Messages that consumers gave back (list).
  * dlq              Dead letters (list, export, requeue).
    delay            Delayed messages (list, due).
    transaction      Half messages and what ended them (list, show).
    rebalance        Tell which consumer gets which queue (plan).

Tables, through Spark:
    dump-to-parquet  Write all messages to Parquet.
    sql              Query a store in SQL.
    report           Ready reports (traffic, sizes, duplicates, producers, lag,
                     unconsumed, retries).
    warm-up          Make Spark start faster from now on.

Options:
  --version             Print the version.
  --no-pager            Show long output as it is, without PAGER or less.
  --install-completion  Install completion for the current shell.
  --show-completion     Print that completion, to copy it.
  -h, --help            Show this text; COMMAND --help shows its options.

Exit codes: 0 done and clean, 1 problems found or no match, 2 usage, 3 cannot
be read or no store, 4 refused (in use, exists, not confirmed), 5 a damaged
file stops the command, 6 no suitable Java or Spark does not start, 129 its
terminal closed, 130 interrupted, 143 terminated.

Emergencies:
  is anything wrong with a store?   rmqtool check STORE
  broker does not start any more    rmqtool recover STORE --dry-run
  ... and to do what is shown       rmqtool recover STORE
  ... keep messages after damage    rmqtool salvage STORE NEWSTORE
  a JSON file in config/ is broken  rmqtool rebuild STORE config --dry-run
  where is the message with a key?  rmqtool query-key STORE TOPIC KEY --scan
  what is it, and who holds it?     rmqtool info STORE
  what lies at these offsets?       rmqtool commitlog hexdump STORE --offset A:B
  all messages as tables            rmqtool dump-to-parquet STORE OUT
  more of these, with output        rmqtool manual emergencies
"""
