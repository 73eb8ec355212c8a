"""The first screen. A test holds that it names every command, with the first line of that command's own help."""

from rmqtool import __version__

VERSION_TEXT = f"rmqtool {__version__}"

TEXT = """\
Usage: rmqtool COMMAND [ARGS]...

  Inspect, query, recover and export Apache RocketMQ store directories, without a broker.
  Reading never writes into a store, not even a lock.

Emergencies:
  is anything wrong with this store?          rmqtool check STORE
  broker does not start after a power cut     rmqtool recover STORE --dry-run
  ... and to do it                            rmqtool recover STORE
  ... and keep what lies behind the damage    rmqtool salvage STORE NEWSTORE
  a JSON file below config/ is broken         rmqtool rebuild STORE config --dry-run
  where is the message with this key?         rmqtool query-key STORE TOPIC KEY --scan
  what is this directory, who holds it?       rmqtool info STORE
  what lies at this offset, byte by byte?     rmqtool commitlog hexdump STORE --offset A:B
  all messages as tables                      rmqtool dump-to-parquet STORE OUT
  more of these, with what they print         rmqtool manual emergencies

Commands:
  info               Tell what a store is: version, sizes, offsets, topics, marks, who holds it.
  check              Check a whole store: every file by itself, then files against each other.
  explain            Explain a code of check: what it means, how it comes about, what a broker does, what to do.
  recover            Recover a store as a broker would at its next start, keeping everything that is cut.
  rebuild            Rebuild consume queues, index or checkpoint from the commit log, or mend config files.
  salvage            Carve every intact message, also behind damage, into a fresh store that a broker boots.
  undo               Put back what the last writing command replaced.
  run                Serve a store without a broker: deliver delayed messages and retries, check transactions.
  serve              Serve a store to RocketMQ clients, as a broker does, with a name server of its own.
  namesrv            Run a name server, which brokers register with and clients ask for routes.
  send               Send messages to a live cluster, given as NDJSON in the shape that this tool prints, or as lines.
  init               Make an empty store, to append to or to start a broker on.
  append             Append messages to a store, given as NDJSON in the shape that this tool prints.
  import             Make a store that a broker boots from messages in Parquet or NDJSON.
  dispatch           Put messages that no queue has yet into consume queues and index; nothing is cut.
  truncate           Cut the log at a message: remove it and all behind it, from queues and index too.
  clean              Remove expired commit-log files, and what in queues and index points into them.
  query-key          Find the messages of a topic by key, through the index.
  query-id           Find a message by its offset id or its unique id.
  query-offset       Read messages of a queue from a queue offset on.
  query-time         Find the queue offset for a store time.
  dump-to-parquet    Write all messages to Parquet through Spark.
  sql                Query a store in SQL, through Spark.
  report             Run a ready report through Spark (traffic, sizes, duplicates, producers, lag, unconsumed, retries).
  trace              Tell the whole life of one message: every copy of it, and which groups have passed it.
  group              Look at consumer groups and set their offsets (list, lag, offsets, reset, clone, diff).
  topic              Look at topics: settings, queues and consumers (list, show, unused).
  retry              Look at messages that consumers gave back (list).
  dlq                Look at dead letters and give them back (list, export, requeue).
  delay              Look at delayed messages (list, due).
  transaction        Look at transactions: half messages and what ended them (list, show).
  rebalance          Tell which consumer gets which queue (plan).
  warm-up            Make Spark start faster from now on.
  commitlog          Look into the commit log (dump, hexdump).
  consumequeue       Look into consume queues (dump).
  index              Look into index files (dump).
  checkpoint         Show the checkpoint: up to when messages, queues and index are flushed.
  offsets            Show consumer offsets beside the queues they point into.
  config             Show the broker's config files, read as a broker reads them.
  manual             Read the manual: what to do in an emergency, every command, and the format of every file.

Options:
  --version             Print the version.
  --install-completion  Install completion for the current shell.
  --show-completion     Print that completion, to copy it.
  -h, --help            Show this text; COMMAND --help shows a command's options and an example.

Exit codes: 0 done and clean, 1 problems found or no match, 2 usage, 3 cannot be read or no store,
4 refused (in use, exists, not confirmed), 5 a damaged file stops the command, 6 no suitable Java
or Spark does not start, 129 its terminal closed, 130 interrupted, 143 terminated.
"""
