"""Spark's own errors, shortened to what a person needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors.exceptions.base import PySparkException

from ringfaust.errors import RingfaustError

_MAX_CHARS = 3_000


class JobFailed(RingfaustError):
    """Spark ended the job with an error.

    What was committed stays. Fix the cause and start the job again.
    """


@contextmanager
def brief_errors() -> Iterator[None]:
    """Replace a Spark error by one without its hundreds of stack trace lines.

    Raises:
        JobFailed: the body raised a Spark error, which is this error's cause.
    """
    try:
        yield
    except PySparkException as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        # Of lost data Spark says to go on without it, by an option that no job here has.
        noise = ("at ", "If you don't want your streaming query to fail")
        text = "\n".join(line for line in lines if not line.lstrip().startswith(noise))
        raise JobFailed(f"Spark ended the job: {text[:_MAX_CHARS]}") from error
