"""Commands of `ringfaust spark` in this process, on the session that all tests share.

A process of its own costs ten seconds or more: the start of Spark, and code that is not warm.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from ringfaust.cli.main import main
from ringfaust.spark.audit import command as audit_command
from ringfaust.spark.backfill import command as backfill_command
from ringfaust.spark.lake import command as lake_command
from ringfaust.spark.maintain import command as maintain_command
from ringfaust.spark.redrive import command as redrive_command
from ringfaust.spark.ring import command as ring_command

SMALL_DATA = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""With the small data of a test, compiling plans, adapting them, formatting them for a UI that does
not run, noting where each column was made, and starting many tasks would take longest. Two
partitions, not one: a plan that needs rows in the same partition has to say so."""


def for_small_data(folder: Path) -> dict[str, str]:
    """Write these settings for processes; returns the environment of one that reads them.

    Most tests that run a command as a process of its own use the defaults of Spark.
    """
    lines = [f"{name} {value}\n" for name, value in SMALL_DATA.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return {**os.environ, "SPARK_CONF_DIR": str(folder)}


@contextmanager
def shared_session(spark: SparkSession) -> Iterator[None]:
    """Let commands open a session with settings of its own on the shared Spark."""

    def open_session(
        name: str, master: str | None = None, conf: Mapping[str, str] | None = None, **_: bool
    ) -> SparkSession:
        assert master is None, "another master needs a process of its own"
        session = spark.newSession()
        for key, value in dict(conf or {}).items():
            session.conf.set(key, value)
        session.stop = lambda: None  # type: ignore[method-assign]
        return session

    with ExitStack() as patched:
        for command in (
            audit_command, backfill_command, lake_command, maintain_command, redrive_command,
            ring_command,
        ):  # fmt: skip
            patched.enter_context(patch.multiple(command, open_session=open_session))
        yield


def run_command(spark: SparkSession, *arguments: str) -> Result:
    """Run a command; its exit status and output."""
    with shared_session(spark):
        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def run(spark: SparkSession, *arguments: str) -> str:
    """Run a command that must succeed; its output."""
    result = run_command(spark, *arguments)
    assert result.exit_code == 0, result.output
    return result.output
