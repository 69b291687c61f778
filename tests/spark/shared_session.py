"""Commands of `ringfaust spark` in this process, on the session that all tests share.

A process of its own costs ten seconds or more: the start of Spark, and code that is not warm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from ringfaust.cli.main import main
from ringfaust.spark.lake import command as lake_command
from ringfaust.spark.ring import command as ring_command


@contextmanager
def shared_session(spark: SparkSession) -> Iterator[None]:
    """Let commands open a session with settings of its own on the shared Spark."""

    def open_session(
        name: str, master: str | None = None, conf: Mapping[str, str] | None = None
    ) -> SparkSession:
        assert master is None, "another master needs a process of its own"
        session = spark.newSession()
        for key, value in dict(conf or {}).items():
            session.conf.set(key, value)
        session.stop = lambda: None  # type: ignore[method-assign]
        return session

    with patch.multiple(lake_command, open_session=open_session):
        with patch.multiple(ring_command, open_session=open_session):
            yield


def run_command(spark: SparkSession, *arguments: str) -> Result:
    """Run a command; its exit status and output."""
    with shared_session(spark):
        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def run(spark: SparkSession, *arguments: str) -> None:
    """Run a command that must succeed."""
    result = run_command(spark, *arguments)
    assert result.exit_code == 0, result.output
