"""`ringfaust trace --lake` on tables with the columns of a lake."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ringfaust.cli import trace_lake
from ringfaust.cli.main import main
from tests.client.test_sentences import LIVES, NOW_MS

pa = pytest.importorskip("pyarrow")
deltalake = pytest.importorskip("deltalake")
DAY = datetime.fromtimestamp(NOW_MS / 1000, UTC).date()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The events of all lives, as `spark lake` writes them; the last one was redriven."""
    folder = tmp_path_factory.mktemp("lake")
    raw = [line for life in LIVES.values() for line in life]
    names = ("id", "source", "about", "by", "time_ms")
    lines: list[dict[str, Any]] = [
        {"partition": 0, "offset": number, "line": 0, "raw": text, "date": DAY}
        | {name: json.loads(text).get(name) for name in names}
        for number, text in enumerate(raw)
    ]
    record = {"timestamp": NOW_MS, "queue": "orders", "id": "m", "sequence": 2, "date": DAY}
    records = [record | {"key": b"k", "extra": [("redrives", b"1")]}]
    texts = {name: pa.string() for name in ("id", "source", "about", "by", "raw")}
    numbers = {name: pa.int64() for name in ("offset", "time_ms")}
    small = {name: pa.int32() for name in ("partition", "line")}
    schema = pa.schema(texts | numbers | small | {"date": pa.date32()})
    deltalake.write_deltalake(
        f"{folder}/silver/transitions", pa.Table.from_pylist(lines, schema), partition_by=["date"]
    )
    schema = pa.schema({
        "timestamp": pa.int64(), "queue": pa.string(), "id": pa.string(), "sequence": pa.int64(),
        "key": pa.binary(), "extra": pa.map_(pa.string(), pa.binary()), "date": pa.date32(),
    })  # fmt: skip
    deltalake.write_deltalake(
        f"{folder}/silver/records", pa.Table.from_pylist(records, schema), partition_by=["date"]
    )
    return folder


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, ["trace", *arguments], catch_exceptions=False)
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout if status < 2 else result.stderr


def test_a_message_is_found_by_its_id_its_record_and_its_key(lake: Path) -> None:
    by_id = run("m", "--lake", str(lake))
    first, second = (line for line in by_id.splitlines() if line.startswith("Message"))
    assert "Message m in queue orders (number 1): evicted to make room for m-2" in first
    assert first.endswith("Then it was redriven to queue orders (number 2).")
    assert second.startswith(
        "Message m in queue orders (number 2), redriven once: acked by billing"
    )
    assert "evicted to make room for m-2" in run("orders/0/1", "--lake", str(lake))
    assert run("--key", "k", "--lake", str(lake)) == by_id


def test_earlier_messages_of_a_key_that_are_left_out_are_counted(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Left out" not in run("--key", "k", "--lake", str(lake))
    monkeypatch.setattr(trace_lake, "_MOST_KEYED", 0)
    said = run("--key", "k", "--lake", str(lake), status=1)
    assert said.endswith("Left out:\n  - earlier messages with this key: 1\n")


def test_a_message_that_the_lake_does_not_have_is_not_found(lake: Path) -> None:
    assert "No event since" in run("nobody", "--lake", str(lake), status=1)
    assert "with the key nothing" in run("--key", "nothing", "--lake", str(lake), status=1)
    late = ("m", "--lake", str(lake), "--since", "2999-01-01")
    assert "No event since" in run(*late, status=1)


def test_a_folder_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    said = run("m", "--lake", str(tmp_path), status=2)
    assert said.startswith("ringfaust: --lake: ")
    assert len(said.splitlines()) == 1
