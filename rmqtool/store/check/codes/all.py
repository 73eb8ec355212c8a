"""All codes that ``check`` can report: the source of ``explain``, of default severities and of advice.

Codes are stable, since scripts match on them. New ones may be added; none changes its meaning.
"""

from rmqtool.store.check.codes import batches as codes_batches
from rmqtool.store.check.codes import compaction as codes_compaction
from rmqtool.store.check.codes import config as codes_config
from rmqtool.store.check.codes import dledger as codes_dledger
from rmqtool.store.check.codes import files as codes_files
from rmqtool.store.check.codes import index as codes_index
from rmqtool.store.check.codes import log as codes_log
from rmqtool.store.check.codes import message_store as codes_message_store
from rmqtool.store.check.codes import pops as codes_pops
from rmqtool.store.check.codes import queues as codes_queues
from rmqtool.store.check.codes import replication as codes_replication
from rmqtool.store.check.codes import rocks as codes_rocks
from rmqtool.store.check.codes import tiered as codes_tiered
from rmqtool.store.check.codes import timer as codes_timer
from rmqtool.store.check.codes.code import CODE_FIELDS, ERROR, INFO, SEVERITIES, WARNING, Code

__all__ = ["CODES", "CODE_FIELDS", "ERROR", "INFO", "SEVERITIES", "WARNING", "Code"]

_PARTS = (
    codes_files,
    codes_log,
    codes_queues,
    codes_batches,
    codes_rocks,
    codes_index,
    codes_config,
    codes_timer,
    codes_compaction,
    codes_pops,
    codes_message_store,
    codes_tiered,
    codes_replication,
    codes_dledger,
)
CODES: dict[str, Code] = {code.code: code for part in _PARTS for code in part.ALL}
