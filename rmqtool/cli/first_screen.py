"""The first screen. It names every command of the table, and marks those that change a store.

Emergencies come last, so that they are visible when the text is longer than the terminal.
"""

from rmqtool.cli.commands import list_commands
from rmqtool.version import __version__

VERSION_TEXT = f"rmqtool {__version__}"

TEXT = f"""\
Usage: rmqtool COMMAND [ARGS]...

  Inspect, query, recover and export Apache RocketMQ store directories, without
  a broker. Reading never writes into a store, not even a lock.
  Commands with a * change a store, or make one.

{list_commands()}

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
