"""Bundles for a support case: nothing of messages, hosts and secrets in them, and what is needed is there."""

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.message.bodies import decompress
from formats.message.properties import parse
from formats.primitives import COMPRESSED, address_text
from rmqtool.errors import BadValue, Refused
from rmqtool.services.evidence.bundle import LEAST, QUOTING, collect_evidence, finding_row
from rmqtool.services.evidence.masking import Mask
from rmqtool.services.evidence.places import FindingPlaces
from rmqtool.services.lookup.info import store_info
from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.run import check_store
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.goldens import STORES_OF_5_5, cases, cases_of_5, parts_of_5
from tests.store.helpers import tree

WINDOW = 12  # bytes of a body that must not be together in a bundle
CASES = [
    *cases(),
    *cases_of_5(),
    *parts_of_5(),
    *sorted(path.name for path in STORES_OF_5_5.iterdir() if path.is_dir()),
]
# values that every store has, or that brokers write themselves
COMMON = {"true", "false", "DefaultCluster", "DefaultRegion"}
IN_SENTENCES = {"later", "lite"}  # values of the test programs that are words of findings, and of file names, too


def layout_of(store: Path, conf: BrokerConf | None = None) -> StoreLayout:
    return StoreLayout(str(store), conf or BrokerConf())


def bundle(store: Path, out: Path, *, conf: BrokerConf | None = None, hide_names: bool = False) -> dict[str, bytes]:
    """The files of a new bundle."""
    collect_evidence(layout_of(store, conf), str(out), hide_names=hide_names)
    return contents(out)


def contents(out: Path) -> dict[str, bytes]:
    with tarfile.open(out) as packed:
        files = {member.name: packed.extractfile(member) for member in packed}
        return {name.removeprefix("evidence/"): file.read() for name, file in files.items() if file is not None}


def intact(store: Path) -> Iterator[LocatedRecord]:
    for item in CommitLog(layout_of(store)).walk(crc=False):
        if not isinstance(item, Damage):
            yield from item.messages()


def bodies(store: Path) -> Iterator[bytes]:
    """Bodies as stored, and decompressed; the broker's own have its times in them, which a bundle may have."""
    for item in intact(store):
        record = item.record
        if record.topic.startswith(b"rmq_sys_"):
            yield re.sub(rb"\d{13}", b"", record.body)
            continue
        yield record.body
        if record.sys_flag & COMPRESSED:
            yield decompress(record.body, record.sys_flag)


def words(store: Path) -> set[str]:
    """Keys, ids, values of properties and hosts of all messages."""
    collected: set[str] = set()
    for item in intact(store):
        record = item.record
        for value in parse(record.properties).values():
            collected |= {value, *value.split()}
        collected |= {address_text(record.born_address), address_text(record.store_address)}
    return collected


def left_in(store: Path, files: dict[str, bytes], kept: set[str]) -> list[str]:
    """What a bundle has of the bodies, keys, properties and hosts of a store."""
    whole = b"\n".join([*files.values(), *(name.encode() for name in files)])
    for name in sorted(kept, key=len, reverse=True):  # bodies of the broker's own messages have names in them
        if len(name) > 3:
            whole = whole.replace(name.encode(), b"\0")
    windows = {whole[at : at + WINDOW] for at in range(len(whole) - WINDOW)}
    hits = [
        repr(body[at : at + WINDOW])
        for body in set(bodies(store))
        for at in range(len(body) - WINDOW + 1)
        if body[at : at + WINDOW] in windows and len(set(body[at : at + WINDOW])) > 2
    ]
    text = whole.decode()
    sought = {word for word in words(store) if len(word) > 3 and not (word.isdigit() and len(word) < 14)}
    sought -= kept | COMMON | IN_SENTENCES
    hits += [word for word in sought if word in text and re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)]
    return hits + re.findall(r"(?:[0-9a-f]{2} ){8,}[0-9a-f]{2}", text)  # longer than any number


def names_of(store: Path) -> set[str]:
    info = store_info(layout_of(store))
    topics = {topic.topic for topic in info.topics} | {item.record.topic.decode() for item in intact(store)}
    return topics | {*info.groups}


@by_turns(11)
@pytest.mark.parametrize("case", CASES)
def test_nothing_of_any_message_is_in_a_bundle(case: str, golden: Unpacked, tmp_path: Path) -> None:
    store = golden(case)
    before = tree(store)
    files = bundle(store, tmp_path / "out.tar.gz")
    assert left_in(store, files, names_of(store)) == []
    assert tree(store) == before
    assert {"info.json", "check.ndjson", "files.ndjson", "places.txt", "manifest.json"} <= {*files}
    findings = [json.loads(line) for line in files["check.ndjson"].splitlines()]
    assert [row["code"] for row in findings] == [finding.code for finding in check_store(layout_of(store))]


@pytest.mark.parametrize("field", ["size", "magic", "body_length", "zeros", "cut", "body"])
def test_nothing_of_a_damaged_message_is_in_a_bundle(field: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    kept, sound = names_of(store), golden_copy("broker")
    files = sorted((store / "commitlog").iterdir())
    records = [item for item in intact(store) if item.file.path == str(files[0])]
    data = bytearray(files[0].read_bytes())
    for item in records[3::7]:
        at, size = item.at, item.record.total_size
        match field:
            case "size":
                data[at : at + 4] = (size + 9).to_bytes(4, "big")
            case "magic":
                data[at + 4 : at + 8] = b"\1\2\3\4"
            case "body_length":
                data[at + 84 : at + 88] = (2).to_bytes(4, "big")
            case "zeros":
                data[at : at + 40] = bytes(40)
            case "cut":
                data[at + size // 2 : at + size] = bytes(size - size // 2)
            case _:
                data[at + 90] ^= 1
    files[0].write_bytes(data)
    made = bundle(store, tmp_path / "out.tar.gz")
    assert left_in(sound, made, kept) == []
    places = made["places.txt"].decode()
    assert places.count(": commitlog/") >= 3
    assert re.search(r"record\[0\]\.physical_offset: (?:[0-9a-f]{2} ){7}[0-9a-f]{2} = \d+", places) or field == "zeros"


def test_bytes_at_a_place_are_those_of_the_file(golden: Unpacked) -> None:
    store = golden("torn-last-record")
    layout = layout_of(store)
    places, shown = FindingPlaces(layout, Mask(str(store), set())), 0
    for finding in check_store(layout):
        for line in places.show(finding):
            at, _path, content = re.fullmatch(r"([0-9a-f]{8})  (\S+): (.*)", line).groups()  # type: ignore[union-attr]
            if match := re.match(r"((?:[0-9a-f]{2} )+)= (-?\d+)", content):
                raw = bytes.fromhex(match[1])
                assert (store / finding.file).read_bytes()[int(at, 16) :][: len(raw)] == raw
                assert int.from_bytes(raw, "big", signed=True) == int(match[2])
                shown += 1
    assert shown > 20


def test_names_are_hidden_on_request(golden: Unpacked, tmp_path: Path) -> None:
    for case in ("broker-5.3.3", "torn-last-record"):
        store = golden(case)
        names = {name for name in names_of(store) if not name.lower().startswith("rmq_sys_") and "TBW102" not in name}
        own = {name for name in names if re.match(r"(Topic|order-|lab-|pop-|tx-|%)", name)}
        assert own
        shown = b"".join(bundle(store, tmp_path / f"{case}-shown.tar.gz").values())
        hidden = b"".join(bundle(store, tmp_path / f"{case}-hidden.tar.gz", hide_names=True).values())
        assert [name for name in own if name.encode() in shown]
        assert [name for name in own if re.search(rb"(?<!\w)" + re.escape(name.encode()) + rb"(?!\w)", hidden)] == []


def test_settings_keep_no_secret(golden: Unpacked, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "accessKey=rocketmq2\nsecretKey=1234567890\nbrokerIP1=10.20.30.40\nnamesrvAddr=mq.example.org:9876\n"
        "# password: in-a-comment\nsolitary-word\nfileReservedTime=48\nbrokerRole=ASYNC_MASTER\n"
        'innerClientAuthenticationCredentials={"a":"hush"}\nlistenPort=\\uD800oops\nflushDiskType=hush-hush\n'
    )
    files = bundle(golden("broker"), tmp_path / "out.tar.gz", conf=load(str(conf)))
    whole = b"".join(files.values())
    secrets = ("rocketmq2", "1234567890", "10.20.30.40", "example", "in-a-comment", "solitary", "hush", "oops")
    assert [secret for secret in secrets if secret.encode() in whole] == []
    lines = files["broker.conf"].decode().splitlines()
    assert "fileReservedTime=48" in lines
    assert "brokerRole=ASYNC_MASTER" in lines


def test_access_lists_are_left_out(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    for name in ("plain_acl.yml", "config/plain_acl.yml", "config/users", "config/tools.yml", "config/acl.json"):
        (store / name).write_text('{"accessKey": "rocketmq2", "secretKey": "hush-hush"}')
    whole = b"".join(bundle(store, tmp_path / "out.tar.gz").values())
    assert b"rocketmq2" not in whole
    assert b"hush" not in whole


def test_equal_values_look_equal_in_one_bundle_only() -> None:
    first, second = Mask("/store", set()), Mask("/store", set())
    assert first.value("a key", "keys") == first.value(b"a key", "keys") != first.value("another", "keys")
    assert first.value("a key", "keys") != second.value("a key", "keys")


@pytest.mark.parametrize("most", [LEAST, LEAST + 9000, 1 << 20])
def test_a_bundle_is_never_larger_than_allowed(most: int, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    for number in range(3000):
        (store / "config" / f"left-over-{number:032d}").touch()
    out = tmp_path / "out.tar.gz"
    row = collect_evidence(layout_of(store), str(out), most=most)
    assert row.bytes == out.stat().st_size <= most
    manifest = json.loads(contents(out)["manifest.json"])
    assert sum(item["leftOutLines"] > 0 for item in manifest["contents"]) == row.incomplete
    assert (row.incomplete > 0) is (most < 1 << 20)


def test_a_bundle_is_written_over_nothing(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    before = tree(store)
    out, link = tmp_path / "out.tar.gz", tmp_path / "link.tar.gz"
    out.write_bytes(b"mine")
    link.symlink_to(tmp_path / "nowhere")
    for path in (out, link):
        with pytest.raises(Refused, match="exists"):
            collect_evidence(layout_of(store), str(path))
    with pytest.raises(Refused, match="lies in the store"):
        collect_evidence(layout_of(store), str(store / "out.tar.gz"))
    with pytest.raises(BadValue, match="--most"):
        collect_evidence(layout_of(store), str(tmp_path / "new.tar.gz"), most=LEAST - 1)
    assert out.read_bytes() == b"mine"
    assert not (tmp_path / "nowhere").exists()
    assert tree(store) == before


@pytest.mark.parametrize("code", QUOTING)
def test_findings_that_quote_keys_are_masked(code: str) -> None:
    assert code in CODES
    finding = Finding(
        code=code, severity="error", file="timerwheel", actual="message no-id-at-all at physical offset 7"
    )
    assert "no-id-at-all" not in json.dumps(finding_row(finding, Mask("/store", ())))
