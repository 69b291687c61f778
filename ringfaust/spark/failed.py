"""What goes wrong in Spark, told in a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors.exceptions.base import PySparkException

from ringfaust.errors import RingfaustError

_MOST_CHARS = 3_000


class JobFailed(RingfaustError):
    """The job ended by an error. What was committed stays; start it again when it is mended."""


@contextmanager
def told() -> Iterator[None]:
    """Spark's errors without their hundreds of lines of where.

    Raises:
        JobFailed: in place of them.
    """
    try:
        yield
    except PySparkException as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        text = "\n".join(line for line in lines if not line.lstrip().startswith("at "))
        raise JobFailed(f"Spark ended the job: {text[:_MOST_CHARS]}") from error
