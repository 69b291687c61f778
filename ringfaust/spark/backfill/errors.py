"""What can be wrong with a backfill or a redrive; what was committed stays, and is there once."""

from __future__ import annotations

from collections.abc import Sequence

from ringfaust.errors import RingfaustError


class CannotBackfill(RingfaustError):
    """What was asked for cannot be done; nothing was written.

    Attributes:
        field: the option or topic that it is about.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field


class BadRows(RingfaustError):
    """Some rows make no sense as records; nothing was written.

    Attributes:
        count: how many.
        examples: the first of them, a line each.
    """

    def __init__(self, count: int, examples: Sequence[str], advice: str) -> None:
        lines = "\n  ".join(examples)
        super().__init__(
            f"{count:,} rows make no sense as records, and nothing was written:\n  {lines}\n"
            f"{advice}"
        )
        self.count = count
        self.examples = tuple(examples)


class OtherJob(RingfaustError):
    """The brokers know a job of that name that was begun with other rows; nothing was written."""

    def __init__(self, name: str, begun_as: str, now: str) -> None:
        super().__init__(
            f"job {name!r} was begun with other rows than these: {begun_as}; now it is {now}. "
            "Where it stopped is known only for the rows it was begun with: go on with the same "
            "source, mapping and topic, or give another --name, and all of it is written anew"
        )
        self.name = name


class SourceChanged(RingfaustError):
    """The source gave other rows than when it was counted; what was committed stays written."""

    def __init__(self, part: int, last: int, expected: int) -> None:
        super().__init__(
            f"slice {part} ended at row {last:,} where {expected:,} were counted before: the "
            "source changed while it was read, or an expression gives other values each time. "
            "Keep the source as it is (a version of a Delta table: PATH@v7) and run it again"
        )


class TakenOver(RingfaustError):
    """Another process writes the same slice, but gets nowhere; run the job again."""

    def __init__(self, part: int) -> None:
        super().__init__(
            f"slice {part} was taken over by another run of this job, which makes no progress: "
            "see that only one runs, and run it again; it goes on where it stopped"
        )
