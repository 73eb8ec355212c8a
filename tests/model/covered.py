"""Coverage of the command line: every writing command is a step of the model, or there is a reason why not."""

from collections.abc import Callable
from random import Random

from tests.model import services, steps
from tests.model.world import World

Step = Callable[[World, Random], None]

STEPS: dict[str, Step] = {
    "append": steps.append,
    "clean": steps.clean,
    "convert": steps.convert,
    "dispatch": steps.dispatch,
    "dlq requeue": services.requeue,
    "dump-to-parquet": services.dump,
    "export": steps.export,
    "group clone": services.group_clone,
    "group reset": steps.group_reset,
    "import": services.import_,
    "init": services.init,
    "mirror": services.mirror,
    "rebuild": steps.rebuild,
    "recover": steps.recover,
    "replay": services.replay,
    "run": services.run_once,
    "salvage": steps.salvage,
    "serve": steps.serve,
    "truncate": steps.truncate,
    "undo": steps.undo,
}
_LIVE = "it changes settings of a live cluster by requests, and never a store: tests/admin/test_changes.py"
NOT_TAKEN = {
    **dict.fromkeys(
        (
            "topic create",
            "topic update",
            "topic perm",
            "topic delete",
            "group create",
            "group update",
            "group delete",
            "broker-config set",
            "write-perm wipe",
            "write-perm add",
            "kv set",
            "kv delete",
            "order-conf set",
            "order-conf delete",
            "cluster clean",
            "static-topic create",
            "static-topic remap",
            "user create",
            "user update",
            "user delete",
            "acl set",
            "acl delete",
            "group mode",
            "cold-data set",
            "cold-data remove",
            "namesrv-config set",
            "plain-acl set",
            "plain-acl delete",
            "plain-acl set-addresses",
            "controller elect",
            "controller forget",
            "controller-config set",
        ),
        _LIVE,
    ),
    "apply": "it changes two tables of settings, and no message: tests/admin/test_apply_to_store.py",
    "lite dispatch": "it changes nothing, clients look again for messages: tests/admin/test_lite.py",
    "message consume-directly": "it calls a listener and changes nothing: tests/admin/test_clients.py",
    "send-rtt": "it sends messages as send does: tests/admin/test_changes.py",
    "backup create": "it only reads the store, at any time, also beside a broker: tests/store/test_backup.py",
    "backup restore": "it makes a new store from a directory of backups, which no step has: tests/store/test_backup.py",
    "split": "it leaves messages behind, and is convert otherwise: tests/store/test_convert.py",
    "consolidate": "the store of a day has its log in one directory: tests/store/test_convert.py",
    "dump": "it writes a table outside of the store, killed before each of its steps: tests/analytics/test_lake.py",
    "redact": "it takes bodies away, by which a day tells its messages apart: tests/services/test_redaction.py",
    "warm-up": "it starts Spark once, and writes to the user's cache alone: no store and no message is near it",
}
