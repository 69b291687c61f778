"""Spark's own errors, shortened to what a person needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors.exceptions.base import PySparkException

from ringfaust.errors import RingfaustError

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""The second covers those of Hadoop and Delta that PySpark does not translate."""
_MAX_CHARS = 3_000
_TRACEBACK = "Traceback (most recent call last):"
_HADOOP = "hadoop-client-api-"
"""How the jar with Spark's Hadoop begins, followed by the version."""


class JobFailed(RingfaustError):
    """Spark ended the job with an error.

    What was committed stays. Fix the cause and start the job again.
    """


@contextmanager
def brief_errors() -> Iterator[None]:
    """Raise JobFailed, without hundreds of lines of stack traces, for an error of Spark."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise JobFailed(_brief(text_of(error))) from error


def text_of(error: Exception) -> str:
    """Spark's whole message."""
    return str(error.java_exception.toString() if isinstance(error, Py4JJavaError) else error)


def first_line(error: Exception) -> str:
    """Spark's message, without its stack trace and hints."""
    return text_of(error).strip().partition("\n")[0] or type(error).__name__


def _brief(text: str) -> str:
    if "S3AFileSystem not found" in text:
        return (
            "Spark cannot read or write s3a://… without hadoop-aws: add --packages "
            f"org.apache.hadoop:hadoop-aws:{_hadoop_version()}"
        )
    # The frames of Java and Python are indented. Of lost data Spark says to go on without it, by an
    # option that no job here has.
    noise = (" ", "\t", "at ", "If you don't want your streaming query to fail")
    lines = [line for line in text.splitlines() if line and not line.startswith(noise)]
    kept = "\n".join(line.removesuffix(" Return Message: " + _TRACEBACK) for line in lines)
    return f"Spark ended the job: {kept[:_MAX_CHARS]}"


def _hadoop_version() -> str:
    """The version of Spark's Hadoop, which hadoop-aws must have, too."""
    jars = (Path(pyspark.__file__).parent / "jars").glob(f"{_HADOOP}*.jar")
    return next((jar.stem.removeprefix(_HADOOP) for jar in jars), "VERSION")
