"""Errors of backfill and redrive. Records that were committed before an error are written once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ringfaust.errors import RingfaustError


class CannotBackfill(RingfaustError):
    """The request is invalid; nothing was written. The text begins with the option at fault."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(f"{option}: {text}")


class BadRows(RingfaustError):
    """Some rows are no valid records; nothing was written.

    Attributes:
        count: number of bad rows.
    """

    def __init__(self, count: int, examples: Sequence[str], advice: str) -> None:
        lines = "\n  ".join(examples)
        super().__init__(
            f"{count:,} rows are no valid records, and nothing was written:\n  {lines}\n{advice}"
        )
        self.count = count


class OtherJob(RingfaustError):
    """A job of that name was started with other rows; nothing was written."""

    def __init__(self, name: str, started_as: str, now: str) -> None:
        super().__init__(
            f"job {name!r} was started with other rows: {started_as}; now it is {now}. Its "
            "progress is valid only for the rows it was started with: continue with the same "
            "source, mapping and topic, or use another --name to write all rows again"
        )


class SourceChanged(RingfaustError):
    """The source changed after its rows were counted; committed records stay written."""

    def __init__(self, part: int, last: int, expected: int) -> None:
        super().__init__(
            f"slice {part} ended at row {last:,}, but {expected:,} rows were counted before: the "
            "source changed during the run, or an expression returns other values each time. Use "
            "a source that does not change (such as a version of a Delta table: PATH@v7) and run "
            "the job again"
        )


def raised_in_task(error: Exception) -> CannotBackfill | None:
    """The `CannotBackfill` of a task, which Spark passes on as the text of a traceback."""
    name = re.escape(f"{CannotBackfill.__module__}.{CannotBackfill.__qualname__}")
    found = re.search(rf"^{name}: ([^:]+): (.*)$", str(error), re.MULTILINE)
    return CannotBackfill(found[1], found[2]) if found else None
