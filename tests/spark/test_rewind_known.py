"""What `ringfaust spark rewind --lake` prints, and that it says if the lake may not know it yet."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from ringfaust.cli.main import main
from ringfaust.spark.lake import gold
from tests.spark.batched_lake import BatchedLake
from tests.spark.lake_history import LakeHistory

DAY_MS = 86_400_000


def rewind(lake: BatchedLake, *options: str, queue: str = "b") -> Result:
    found = CliRunner().invoke(
        main, ["spark", "rewind", "--lake", lake.root, "--queue", queue, *options]
    )
    assert found.exit_code == 0, found.output
    return found


def at(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_moment_after_the_last_line_of_the_lake_is_told(
    spark: SparkSession, tmp_path: Path, closed: bool
) -> None:
    lake, history = BatchedLake(spark, tmp_path / "lake"), LakeHistory(0, queues={"b": {}})
    history.send("b")
    lake.write(history.values(), history.now_ms)
    gold.catch_up(lake.spark, lake.root, lake.batch)
    if closed:
        count = len(history.lines)
        history.now_ms += DAY_MS
        history.send("b")
        lake.write(history.values(after=count), history.now_ms)
        gold.catch_up(lake.spark, lake.root, lake.batch)
    last_ms, step = history.now_ms, history.host.state.step
    for moment in (("--at", at(last_ms)), ("--step", f"0/{step}")):
        known = rewind(lake, "--json", *moment)
        assert "known_until_ms" not in json.loads(known.stdout)
        assert "the lake's last event" not in known.stderr
    for moment in (("--at", at(last_ms + 1)), ("--step", f"0/{step + 1}")):
        later = rewind(lake, "--json", *moment)
        assert json.loads(later.stdout)["known_until_ms"] == {"0": last_ms}
        assert "b, partition 0: the lake's last event is of 2025-10-" in later.stderr
    diff = rewind(lake, "--json", "--step", f"0/{step}", "--to", at(last_ms + 1))
    assert json.loads(diff.stdout)["known_until_ms"] == {"0": last_ms}


def test_brackets_in_names_are_no_markup(spark: SparkSession, tmp_path: Path) -> None:
    queue = "a[/b][c]"
    lake, history = BatchedLake(spark, tmp_path / "lake"), LakeHistory(0, queues={queue: {}})
    history.send(queue)
    lake.write(history.values(), history.now_ms)
    shown = rewind(lake, "--at", at(history.now_ms), queue=queue).stdout
    assert f"{queue}, partition 0, after" in shown
