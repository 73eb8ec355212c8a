"""The commands for settings of live brokers, and for what their name servers hold."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change, change_brokers, list_rows, need_target, parse_settings
from rmqtool.cli.framework.choice import matches
from rmqtool.cli.framework.options import Output, OutputOption, SettingOption, SettingsArgument, TargetArgument
from rmqtool.cli.framework.planning import CHANGE, CHANGE_BROKERS, BrokerChange, ChangeOptions

Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Namespace of the entry.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="Key of the entry.")]
BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]


@command("broker-config set", "rmqtool broker-config set @lab flushDiskType=SYNC_FLUSH --dry-run")
def broker_config_set(store: TargetArgument, settings: SettingsArgument, options: BrokerChange = CHANGE_BROKERS) -> int:
    """Change settings of every broker of a cluster, after showing the plan.

    A broker also writes them to its properties file, if it was started with one. Names that a broker does not know are
    refused; the broker itself would accept and ignore them. Exit codes as for topic create.
    """
    values = parse_settings(settings)
    from rmqtool.admin.changes.plans import plan_settings

    return change_brokers(
        store, lambda questions, where: plan_settings(questions, where, values),
        command="broker-config set", options=options,
    )  # fmt: skip


@command("write-perm wipe", "rmqtool write-perm wipe @lab lab-a --dry-run")
def write_perm_wipe(store: TargetArgument, broker: BrokerName, options: ChangeOptions = CHANGE) -> int:
    """Stop clients from sending to a broker, before it is shut down for example; the plan is shown first.

    The permission is removed on every name server. A name server forgets this when it restarts, or when the broker
    registers a changed topic. Exit codes as for topic create.
    """
    return _write_permission(store, broker, options, wipe=True)


@command("write-perm add", "rmqtool write-perm add @lab lab-a --dry-run")
def write_perm_add(store: TargetArgument, broker: BrokerName, options: ChangeOptions = CHANGE) -> int:
    """Let clients send to a broker again, after showing the plan.

    Every name server then gives read and write permission to all topics of the broker, whatever they had before. Exit
    codes as for topic create.
    """
    return _write_permission(store, broker, options, wipe=False)


def _write_permission(store: str, broker: str, options: ChangeOptions, *, wipe: bool) -> int:
    from rmqtool.admin.changes.plans import Where, plan_write_permission

    target = need_target(store)
    return change(
        target, lambda questions: plan_write_permission(questions, Where(target=target), broker, wipe=wipe),
        command=f"write-perm {'wipe' if wipe else 'add'}", options=options,
    )  # fmt: skip


# -- name servers -----------------------------------------------------------------------------------------------------


@command("namesrv-config show", "rmqtool namesrv-config show @lab --name '*Thread*'")
def namesrv_config_show(store: TargetArgument, name: SettingOption = None, output: OutputOption = Output.text) -> int:
    """Show the settings that name servers run with.

    Exit code 1: a name server does not answer, or no setting matches.
    """
    from rmqtool.admin.live.settings import NameServerSetting, list_name_server_settings

    return list_rows(
        store, NameServerSetting,
        lambda target, warn: list_name_server_settings(target, warn, lambda text: matches(text, name)),
        output, wide=("value",), name=name,
    )  # fmt: skip


@command("namesrv-config set", "rmqtool namesrv-config set @lab orderMessageEnable=true --dry-run")
def namesrv_config_set(store: TargetArgument, settings: SettingsArgument, options: ChangeOptions = CHANGE) -> int:
    """Change settings of every name server, after showing the plan.

    A name server also writes them to its properties file. Names that it does not have are refused. Exit codes as for
    topic create.
    """
    target, values = need_target(store), parse_settings(settings)
    from rmqtool.admin.changes.plans import plan_name_server_settings

    return change(
        target, lambda questions: plan_name_server_settings(questions, target, values), command="namesrv-config set",
        options=options,
    )  # fmt: skip


@command("kv show", "rmqtool kv show @lab ORDER_TOPIC_CONFIG")
def kv_show(
    store: TargetArgument,
    namespace: Namespace,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="Only this entry.")] = None,
    output: OutputOption = Output.text,
) -> int:
    """Show the entries of a KV namespace on each name server.

    Exit code 1: there are none, or a name server does not answer.
    """
    return _show_entries(store, namespace, key, output)


@command("kv set", "rmqtool kv set @lab NAMES key value --dry-run")
def kv_set(
    store: TargetArgument,
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Value of the entry.")],
    options: ChangeOptions = CHANGE,
) -> int:
    """Set an entry of the KV configuration on every name server, after showing the plan.

    Exit codes as for topic create.
    """
    return _set_entry(store, namespace, key, value, options)


@command("kv delete", "rmqtool kv delete @lab NAMES key --dry-run")
def kv_delete(store: TargetArgument, namespace: Namespace, key: Key, options: ChangeOptions = CHANGE) -> int:
    """Delete an entry of the KV configuration on every name server, after showing the plan.

    Exit codes as for topic create.
    """
    return _set_entry(store, namespace, key, None, options)


def _set_entry(store: str, namespace: str, key: str, value: str | None, options: ChangeOptions) -> int:
    target, name = need_target(store), f"kv {'delete' if value is None else 'set'}"
    from rmqtool.admin.changes.plans import plan_key_value

    return change(
        target, lambda questions: plan_key_value(questions, target, namespace, key, value, command=name), command=name,
        options=options,
    )  # fmt: skip


@command("order-conf show", "rmqtool order-conf show @lab")
def order_conf_show(
    store: TargetArgument,
    topic: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this topic.")] = None,
    output: OutputOption = Output.text,
) -> int:
    """Show the ordered topics on each name server, with the number of queues per broker.

    Exit code 1: there are none, or a name server does not answer.
    """
    from rmqtool.admin.changes.name_servers import ORDER_TOPICS

    return _show_entries(store, ORDER_TOPICS, topic, output)


@command("order-conf set", "rmqtool order-conf set @lab Sequenced lab-a:4 --dry-run")
def order_conf_set(
    store: TargetArgument,
    topic: TopicName,
    queues: Annotated[
        str, typer.Argument(metavar="QUEUES", help="BROKER:N, the number of queues on a broker; separate several by ;.")
    ],
    options: ChangeOptions = CHANGE,
) -> int:
    """Make a topic ordered on every name server, with a number of queues per broker, after showing the plan.

    Exit codes as for topic create.
    """
    return _order(store, topic, queues, options)


@command("order-conf delete", "rmqtool order-conf delete @lab Sequenced --dry-run")
def order_conf_delete(store: TargetArgument, topic: TopicName, options: ChangeOptions = CHANGE) -> int:
    """Make a topic unordered on every name server, after showing the plan.

    Exit codes as for topic create.
    """
    return _order(store, topic, None, options)


def _order(store: str, topic: str, queues: str | None, options: ChangeOptions) -> int:
    target, name = need_target(store), f"order-conf {'delete' if queues is None else 'set'}"
    from rmqtool.admin.changes.plans import plan_order

    return change(
        target, lambda questions: plan_order(questions, target, topic, queues), command=name, options=options,
    )  # fmt: skip


def _show_entries(store: str, namespace: str, key: str | None, output: Output) -> int:
    from rmqtool.admin.live.name_servers import KvEntry, list_entries

    return list_rows(
        store, KvEntry, lambda target, warn: list_entries(target, namespace, key, warn), output, wide=("value",),
        namespace=namespace, key=key,
    )  # fmt: skip
