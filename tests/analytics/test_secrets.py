"""Keys, passwords and tokens in URIs are never printed, whatever fails."""

import json
from pathlib import Path

import pytest
from pyspark.errors import ParseException

from rmqtool.analytics.remote import secrets
from rmqtool.analytics.remote.secrets import remove_secrets
from rmqtool.analytics.spark.failure import failure
from rmqtool.analytics.sql.query import translate_errors
from rmqtool.errors import BadValue
from rmqtool.store.disk.remote import show_uri
from tests.analytics.helpers import log_of, store_of
from tests.cli.running import rmqtool

SECRET = "geheim"
URIS = [
    f"s3://AKIA:{SECRET}@bucket/out?endpoint_override=127.0.0.1:9&scheme=http&region=x",
    f"s3://bucket/out?access_key=AKIA&secret_key={SECRET}&region=x",
    f"s3://AKIA:sec/{SECRET}@bucket/out",
    f"s3://AKIA:sec?{SECRET}@bucket/out",
    f"s3://AKIA:{SECRET}%2Fmore@bucket/out?nonsense=1",
    f"s3://bucket/out?X-Amz-Signature={SECRET}&X-Amz-Security-Token={SECRET}",
    f"abfss://container@account.dfs.core.windows.net/out?sas_token=sig%3D{SECRET}",
    f"abfss://account:{SECRET}@container/out",
    f"nosuch://user:{SECRET}@host/out",
    f"https://user:{SECRET}@host/out?token={SECRET}",
    f"hdfs://user:{SECRET}@host:1/out",
]


@pytest.mark.parametrize("uri", URIS)
def test_no_message_has_them(uri: str) -> None:
    assert SECRET not in show_uri(uri)
    text = f"Cannot open '{uri}': {SECRET} was refused"
    assert SECRET not in remove_secrets(text, [uri])


@pytest.mark.parametrize("uri", URIS)
def test_no_failure_of_spark_has_them(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", {uri: None})
    stack = (
        f"An error occurred while calling o1.load.\n: java.io.IOException: {uri}: {SECRET} was refused\n\tat x.Y.z()"
    )
    assert SECRET not in failure(RuntimeError(stack))
    text = f"a stack\n  Traceback (most recent call last):\n    File x\n  OSError: {uri}: no {SECRET}"
    assert failure(RuntimeError(text)).startswith("OSError: ")
    assert SECRET not in failure(RuntimeError(text))
    with pytest.raises(BadValue) as told_of, translate_errors():
        raise ParseException(f"[TABLE_OR_VIEW_NOT_FOUND] `{uri}` with {SECRET}")
    assert SECRET not in str(told_of.value)


@pytest.mark.parametrize("uri", [uri for uri in URIS if not uri.startswith(("abfss", "hdfs", "s3://bucket"))][1:])
@pytest.mark.parametrize(
    "args",
    [
        ("dump-to-parquet", "STORE", "URI", "--engine", "local"),
        ("dump-to-parquet", "STORE", "URI", "--engine", "local", "--since-last"),
        ("dump-to-parquet", "URI", "OUT", "--engine", "local"),
        ("sql", "URI", "select 1"),
        ("report", "traffic", "URI"),
        ("info", "URI"),
        ("check", "URI"),
        ("append", "URI", "FILE"),
        ("import", "URI", "NEW"),
        ("salvage", "STORE", "URI"),
    ],
)
def test_no_command_says_them(args: tuple[str, ...], uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    layout = store_of(tmp_path, log_of(["A"] * 3))
    (tmp_path / "lines").write_text(json.dumps({"topic": "T", "body": "x"}))
    meant = {"STORE": layout.root, "URI": uri, "OUT": "out", "FILE": "lines", "NEW": "new"}
    translate_errors = rmqtool(*(meant.get(word, word) for word in args))
    assert translate_errors.code != 0 or args[0] == "salvage"
    assert SECRET not in translate_errors.out + translate_errors.err
