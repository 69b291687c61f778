"""`--conf` and `--packages`, and errors that would be a page of Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from unittest.mock import Mock, call

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import ringfaust
from ringfaust.cli.main import main
from ringfaust.errors import BadSetting
from ringfaust.spark import session
from ringfaust.spark.errors import JobFailed, brief_errors
from ringfaust.spark.files import HadoopFolder

AWS = "org.apache.hadoop:hadoop-aws:3.4.1"


class Stop(Exception):
    """Raised instead of a start of Spark."""


class Builder:
    """Keeps what a session would be created with."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def config(self, name: str, value: str) -> Self:
        self.settings[name] = value
        return self

    def appName(self, _: str) -> Self:  # noqa: N802 - Spark's
        return self

    master = appName

    def getOrCreate(self) -> Any:  # noqa: N802 - Spark's
        raise Stop


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    found = Builder()
    monkeypatch.setattr(session.SparkSession, "builder", found)
    yield found
    session.use_settings((), None)


@pytest.mark.java
def test_every_command_hands_settings_to_its_session(builder: Builder, tmp_path: Path) -> None:
    memory = "spark.driver.memory=5g"
    given = ["spark", "maintain", "--lake", str(tmp_path), "--conf", memory, "--packages", AWS]
    found = CliRunner().invoke(main, given)
    assert isinstance(found.exception, Stop), found.output
    assert builder.settings["spark.driver.memory"] == "5g", "it wins over our own"
    assert builder.settings["spark.jars.packages"] == AWS
    CliRunner().invoke(main, given[:4])
    builder.settings.clear()
    CliRunner().invoke(main, given[:4])
    assert builder.settings["spark.driver.memory"] == "2g"
    for command in ("ring", "move-to-worker", "lake", "audit", "backfill", "redrive", "rewind"):
        shown = CliRunner().invoke(main, ["spark", command, "--help"]).output
        assert "--conf NAME=VALUE" in shown and "--packages" in shown, command


@pytest.mark.java
@pytest.mark.parametrize("name", ["", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"])
def test_a_collector_that_the_environment_chooses_is_the_only_one(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Java does not start with two."""
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    if name:
        monkeypatch.setenv(name, "-XX:+UseZGC")
    with pytest.raises(Stop):
        session.open_session("mine")
    options = builder.settings["spark.driver.extraJavaOptions"]
    assert ("ParallelGC" in options) == (not name)


@pytest.mark.java
@pytest.mark.parametrize(
    ("master", "address"), [("local[2]", "127.0.0.1"), ("spark://host:7077", None)]
)
def test_executors_on_other_machines_reach_the_driver(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, master: str, address: str | None
) -> None:
    """Spark tells them the address at which the driver listens."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "")  # monkeypatch puts back what is there now
    monkeypatch.delenv("SPARK_LOCAL_IP")
    with pytest.raises(Stop):
        session.open_session("mine", master)
    assert os.environ.get("SPARK_LOCAL_IP") == address


@pytest.mark.java
def test_executors_of_a_command_run_the_code_of_the_driver(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a checkout after `pip install .`, they ran sources that are not compiled."""
    safe_path = "spark.executorEnv.PYTHONSAFEPATH"
    for folder, is_safe in ((tmp_path, True), (Path(ringfaust.__file__).parents[1], False)):
        monkeypatch.chdir(folder)
        builder.settings.clear()
        session.use_settings((), None)
        with pytest.raises(Stop):
            session.open_session("mine")
        assert (builder.settings.get(safe_path) == "1") == is_safe


def test_settings_that_are_given_win_over_those_of_a_job(builder: Builder) -> None:
    """The lake sets its own in a session of its own, which comes later than the command line's."""
    job = Mock()
    session.use_settings(["spark.sql.mine=given"], None)
    session.set_unless_given(job, {"spark.sql.mine": "own", "spark.sql.other": "own"})
    # Where another program has started Spark, a new session has the time zone of the cluster.
    utc = call("spark.sql.session.timeZone", "UTC")
    assert job.conf.set.call_args_list == [utc, call("spark.sql.other", "own")]


@pytest.mark.parametrize("conf", ["", "spark.a", "a=b", "=b"])
def test_what_is_no_setting_of_spark_is_refused(conf: str) -> None:
    with pytest.raises(BadSetting, match=r"use NAME=VALUE, such as spark.executor.memory=4g"):
        session.use_settings([conf], None)


def test_a_secret_without_its_prefix_is_not_repeated() -> None:
    with pytest.raises(BadSetting, match=r"fs.s3a.secret.key=…") as refused:
        session.use_settings(["fs.s3a.secret.key=hush=1"], None)
    assert "hush" not in f"{refused.value}{refused.value.value}"


@pytest.mark.parametrize("packages", ["", "hadoop-aws", f"{AWS},", "a:b"])
def test_what_is_no_package_is_refused(packages: str) -> None:
    with pytest.raises(BadSetting, match=f"use GROUP:NAME:VERSION, such as {AWS}"):
        session.use_settings([], packages)


def test_s3_without_its_package_names_the_package(spark: SparkSession) -> None:
    with pytest.raises(JobFailed, match=f"add --packages {AWS}$"), brief_errors():
        HadoopFolder(spark, "s3a://bucket/lake").exists()


@pytest.mark.java
def test_a_master_that_is_none_is_named(tmp_path: Path) -> None:
    """In a process of its own: the session that the tests share has a master."""
    given = ["--lake", str(tmp_path), "--master", "nonsense"]
    command = [sys.executable, "-m", "ringfaust", "spark", "maintain", *given]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (found.returncode, "Traceback" in found.stderr) == (2, False), found.stderr
    assert "Spark does not start with --master nonsense: " in found.stderr


def test_rewind_without_a_broker_says_so_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "worker.yaml").write_text(json.dumps({"bootstrap_servers": "127.0.0.1:1"}))
    (tmp_path / "queues.yaml").write_text("{}")
    given = ["--config", str(tmp_path), "--queue", "orders", "--at", "2026-01-31T17:05:00Z"]
    found = CliRunner().invoke(main, ["spark", "rewind", *given])
    assert found.exit_code == 2
    assert "No Kafka broker answers at 127.0.0.1:1" in found.stderr
