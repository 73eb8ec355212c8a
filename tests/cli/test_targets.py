"""A live cluster instead of a store directory: how to name it, and which commands accept it."""

import json
import socket
import tomllib
from pathlib import Path

import pytest

from rmqtool.admin.target import Target, parse_target
from rmqtool.cli.commands import COMMANDS, WORDS, Group
from rmqtool.errors import BadValue
from rmqtool.testing import TestBroker, rocketmq  # noqa: F401 (a fixture)
from tests.cli.running import ROOT, rmqtool
from tests.cli.test_help import commands, live_only
from tests.test_start import loaded_by


@pytest.mark.parametrize(
    ("text", "namesrv", "cluster"),
    [
        ("rocketmq://ns:9876", ("ns:9876",), None),
        ("rocketmq://ns1:9876,ns2:19876/Prod", ("ns1:9876", "ns2:19876"), "Prod"),
        ("rocketmq://[::1]:9876", ("[::1]:9876",), None),
        ("rocketmq://10.0.0.1:9876;10.0.0.2:9876", ("10.0.0.1:9876", "10.0.0.2:9876"), None),
    ],
)
def test_a_target_has_name_servers_and_perhaps_a_cluster(text: str, namesrv: tuple[str, ...], cluster: str) -> None:
    assert parse_target(text) == Target(text=text, namesrv=namesrv, cluster=cluster)


@pytest.mark.parametrize(
    "text",
    [
        "rocketmq://", "rocketmq:///Prod", "rocketmq://ns", "rocketmq://ns:", "rocketmq://ns:0", "rocketmq://ns:70000",
        "rocketmq://ns:9876/", "rocketmq://ns:9876/a/b", "rocketmq://ns:9876?tls=true", "rocketmq://key:word@ns:9876",
        "rocketmq://ns 1:9876",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadValue) as error:
        parse_target(text)
    assert "word" not in str(error.value), "what may be a password is not repeated"


PROFILE = {"namesrv": "ns:9876", "cluster": "Prod", "access-key-env": "A", "secret-key-env": "B"}


def test_a_profile_names_variables_and_never_keys() -> None:
    expected = Target(text="@prod", namesrv=("ns:9876",), cluster="Prod", key_names=("A", "B"))
    assert parse_target("@prod", {"prod": PROFILE}) == expected
    for wrong in ({"secret-key": "x"}, {"namesrv": 5}, {"secret-key-env": ""}, {"acl": "tools.yml"}, {"namesrv": "x"}):
        with pytest.raises(BadValue, match=r"^@prod: "):
            parse_target("@prod", {"prod": PROFILE | wrong})
    with pytest.raises(BadValue, match=r"which has @prod"):
        parse_target("@test", {"prod": PROFILE})


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a config file that is still to be written."""
    path = tmp_path / "config.toml"
    monkeypatch.setenv("RMQTOOL_CONFIG", str(path))
    return path


def test_a_profile_of_the_config_file(rocketmq: TestBroker, config: Path) -> None:  # noqa: F811
    config.write_text(f'output = "ndjson"\n[target.lab]\nnamesrv = "{rocketmq.namesrv}"\n')
    result = rmqtool("cluster", "list", "@lab")
    assert result.code == 0, result.err
    assert json.loads(result.out)["brokerName"] == "broker-a"


def test_clients_take_a_target_among_their_arguments(
    rocketmq: TestBroker,  # noqa: F811
    config: Path,
    tmp_path: Path,
) -> None:
    config.write_text(
        f'[target.lab]\nnamesrv = "{rocketmq.namesrv}"\n[target.part]\nnamesrv = "{rocketmq.namesrv}"\ncluster = "C"\n'
    )
    target, lines, copy = f"rocketmq://{rocketmq.namesrv}", tmp_path / "lines", tmp_path / "copy"
    lines.write_text("a\nb\n")
    assert rmqtool("send", "@lab", "Targets", lines, "--lines", "-o", "json").code == 0
    assert rmqtool("mirror", "Targets", copy, target).code == 0
    assert rmqtool("replay", copy, "@lab", "--to", "Again").code == 0
    for words in (
        ("consume", target, "Again"),
        ("consume", "Again", "@lab"),
        ("consume", "Again", "--namesrv", "@lab"),
        ("consume", "Again", "--namesrv", rocketmq.namesrv),
    ):
        result = rmqtool(*words, "-o", "ndjson")
        bodies = {json.loads(line)["body"] for line in result.out.splitlines()}  # queues are read by turns
        assert bodies == {"a", "b"}, result.err
    both = rmqtool("consume", "@lab", "Again", f"--namesrv={rocketmq.namesrv}")
    assert (both.code, both.err) == (2, "error: @lab: give a target or --namesrv, not both\n")
    part = rmqtool("send", "@part", "Targets", lines, "--lines")
    assert (part.code, part.out) == (2, "")
    assert "not those of cluster C alone" in part.err


def test_a_file_of_that_name_is_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("@lab").mkdir()
    assert "not a store directory" in rmqtool("topic", "list", "@lab").err


def test_the_variable_stands_for_a_store_that_is_left_out(
    rocketmq: TestBroker,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RMQTOOL_TARGET", f"rocketmq://{rocketmq.namesrv}")
    result = rmqtool("topic", "show", "TBW102", "-o", "json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["topic"] == "TBW102"
    assert rmqtool("group", "lag", "--group", "nobody").code == 1
    assert f"{tmp_path}: not a store" in rmqtool("topic", "list", tmp_path).err, "a directory that is named counts"
    for arguments in (("check",), ("recover", "--yes"), ("clean",)):
        result = rmqtool(*arguments)
        assert result.code == 2
        assert "STORE" in result.err, "what needs files never takes the variable"


PLAUSIBLE = {"part": "config", "queue": "0"}
OPTIONS = {"static-topic create": ("--queues", "4"), "dump": ("--to", "delta")}
FILES_ONLY = [
    name
    for name, command in COMMANDS.items()
    if not command.live and any(parameter.name == "store" for parameter in commands()[name].params)
]


@pytest.mark.parametrize("name", FILES_ONLY)
def test_a_command_that_needs_files_says_so(name: str) -> None:
    needed = [parameter for parameter in commands()[name].params if parameter.param_type_name == "argument"]
    args = [
        "rocketmq://127.0.0.1:1" if parameter.name == "store" else PLAUSIBLE.get(parameter.name, "1")
        for parameter in needed
        if parameter.required
    ]
    result = rmqtool(*name.split(), *args)
    assert result.code == 2
    assert result.out == ""
    assert f"{name}: needs the files of a store directory" in result.err
    assert result.err.count("\n") == 1


TAKES_TARGET = [
    (name, parameter.name)
    for name in COMMANDS
    for parameter in commands()[name].params
    if parameter.param_type_name == "argument" and parameter.name in ("store", "stores", "target") and name != "init"
]


@pytest.mark.parametrize(("name", "where"), TAKES_TARGET)
def test_a_target_without_its_scheme(name: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    needed = [parameter for parameter in commands()[name].params if parameter.param_type_name == "argument"]
    args = [
        "ns1:9876,ns2:9876/Prod" if parameter.name == where else PLAUSIBLE.get(parameter.name, "1")
        for parameter in needed
        if parameter.required or parameter.name == where
    ]
    if name == "cluster clean":
        args[1] = "log"
    result = rmqtool(*name.split(), *args, *OPTIONS.get(name, ()))
    assert (result.code, result.out) == (2, "")
    expected = "no such directory; a live cluster is named rocketmq://ns1:9876,ns2:9876/Prod"
    assert result.err == f"error: ns1:9876,ns2:9876/Prod: {expected}\n"


def test_a_directory_with_such_a_name_is_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert rmqtool("init", "ns1:9876").code == 0
    assert rmqtool("info", "ns1:9876").code == 0


@pytest.mark.parametrize("words", [
    ("info",), ("cluster", "list"), ("doctor",), ("kv", "show", "NS"), ("namesrv-config", "show"), ("topic", "list"),
    ("topic", "create", "T", "--yes"), ("kv", "set", "NS", "K", "V", "--yes"), ("group", "lag"),
])  # fmt: skip
def test_a_broker_is_no_name_server(rocketmq: TestBroker, words: tuple[str, ...]) -> None:  # noqa: F811
    at = 2 if isinstance(WORDS[words[0]], Group) else 1
    result = rmqtool(*words[:at], f"rocketmq://{rocketmq.address}", *words[at:])
    assert result.code == 3
    assert f"{rocketmq.address}: not a name server: it does not know request" in result.err


@pytest.mark.parametrize("words", [
    ("serve", "TARGET"), ("serve", "--read-only", ".", "TARGET"), ("replicas", ".", "TARGET"), ("diff", ".", "TARGET"),
    ("salvage", "TARGET", "new"),
])  # fmt: skip
def test_a_cluster_among_several_directories(words: tuple[str, ...]) -> None:
    result = rmqtool(*("rocketmq://127.0.0.1:1" if word == "TARGET" else word for word in words))
    assert (result.code, result.out) == (2, "")
    assert "needs the files of a store directory" in result.err


@pytest.mark.parametrize("name", ["user", "acl"])
def test_a_broker_without_access_control(name: str, rocketmq: TestBroker) -> None:  # noqa: F811
    result = rmqtool(name, "list", f"rocketmq://{rocketmq.namesrv}")
    assert result.code == 3
    assert "no broker has access control of 5.x" in result.err


# what a command needs beside its arguments to make a plan
NEEDED = {
    "topic update": ("--queues", "4"), "group update": ("--consume",), "group reset": ("--to-latest",),
    "user create": ("--super", "--password-file", "/etc/hostname"), "user update": ("--disable",),
    "acl set": ("--resource", "Topic:T", "--action", "Sub"), "plain-acl set": ("--admin",), "dump": ("--to", "delta"),
    "static-topic create": ("--queues", "4"), "group diff": ("/etc/hostname",),
}  # fmt: skip
VALUES = {
    "message_id": "X", "time": "now", "settings": "a=b", "perm": "R", "queues": "lab-a:4", "subject": "User:a",
    "target": "2", "mode": "POP", "access_key": "billing-app", "part": "log",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.live and name != "undo"])
def test_without_a_name_server_a_command_ends_with_3(name: str, tmp_path: Path) -> None:
    declared = tmp_path / "cluster.yaml"
    declared.write_text("topics: {New: {}}\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        values = {**VALUES, "file": str(declared), "store": f"rocketmq://127.0.0.1:{taken.getsockname()[1]}"}
        values["out"] = str(tmp_path / "out")
        needed = [parameter for parameter in commands()[name].params if parameter.param_type_name == "argument"]
        plans = any("--dry-run" in parameter.opts for parameter in commands()[name].params)
        more = (*NEEDED.get(name, ()), *(("--dry-run",) if plans else ()))
        result = rmqtool(
            *name.split(), *(values.get(parameter.name, "1") for parameter in needed if parameter.required), *more
        )
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith("error: no name server answers: ")
    assert result.err.count("\n") == 1


def test_options_of_files_are_refused() -> None:
    for arguments in (
        ("query-key", "T", "k", "--scan"), ("offsets", "--bak"), ("group", "lag", "--broadcast", "x"),
        ("group", "offsets", "--broker", "a"), ("query-time", "T", "0", "now", "--upper"),
    ):  # fmt: skip
        at = 2 if arguments[0] == "group" else 1
        result = rmqtool(*arguments[:at], "rocketmq://127.0.0.1:1", *arguments[at:])
        assert (result.code, result.out) == (2, ""), arguments


def test_commands_of_clusters_take_no_directory(tmp_path: Path) -> None:
    for name in live_only():
        needed = [
            parameter
            for parameter in commands()[name].params
            if parameter.param_type_name == "argument" and parameter.required
        ]
        plans = any("--dry-run" in parameter.opts for parameter in commands()[name].params)
        more = (*NEEDED.get(name, ()), *(("--dry-run",) if plans else ()))
        values = {**VALUES, "store": str(tmp_path)}
        result = rmqtool(*name.split(), *(values.get(parameter.name, "1") for parameter in needed), *more)
        assert result.code == 2
        assert "give a live cluster" in result.err
    for arguments in (("query-offset", "T", "0", "0"), ("query-time", "T", "0", "now"), ("config",)):
        assert "--broker" in rmqtool(arguments[0], tmp_path, *arguments[1:], "--broker", "a").err


@pytest.mark.parametrize(
    "line", ["topic list {}", "group lag {}", "query-offset {} Orders 0 0", "info {}", "offsets {}"]
)
def test_a_directory_costs_no_client(line: str) -> None:
    loaded = loaded_by(*line.format(ROOT / "examples" / "store").split())
    assert not {name for name in loaded if name.startswith(("asyncio", "rmqtool.client", "rmqtool.admin.live"))}


def test_the_profiles_of_the_manual() -> None:
    text = (ROOT / "rmqtool" / "manual" / "administration.md").read_text()
    profiles = tomllib.loads(text.partition("```toml\n")[2].partition("```")[0])["target"]
    prod = parse_target("@prod", profiles)
    assert (prod.namesrv, prod.cluster) == (("ns1:9876", "ns2:9876"), "Prod")
    assert parse_target("@lab", profiles).acl == "tools.yml"
