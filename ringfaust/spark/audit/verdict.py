"""One pass of the audit: read, compare and count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ringfaust.protocol.records import Role
from ringfaust.spark.audit import accounts, lifecycles, match
from ringfaust.spark.audit.balance import Balance, Frames, TopicPositions, joined
from ringfaust.spark.audit.findings import IDENTITY, KINDS, gather
from ringfaust.spark.audit.outcomes import OutcomeChecker
from ringfaust.spark.audit.sources import AuditData, AuditRequest, checkpoint, positions


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an audit."""

    inputs: int
    """Number of records in the producers' topics."""
    waiting: int
    """Number of those that no worker has read yet."""
    lines: int
    """Number of lines in the events topic, without repeats."""
    records: int
    """Number of records in the dispatched, evicted and dead topics, without repeats."""
    repeats: int
    """Number of records that are exact copies of earlier ones."""
    gaps: list[str]
    """Offsets of the producers' topics that workers reported as gone: `lifecycles.input_gaps`."""
    kinds: dict[str, int]
    """Number of findings per kind, the most severe first."""
    unbalanced: int
    """Number of queues that do not add up or have a finding."""
    unbalanced_windows: int
    """Number of windows that do not add up."""
    totals: dict[str, int]
    """The sums of `accounts.COUNTS` over all queues, and `queues`, their number."""
    events: DataFrame
    """Result of `lifecycles.trace`."""
    queues: DataFrame
    """Result of `accounts.queue_rows`."""
    windows: DataFrame | None
    """Result of `accounts.window_rows`; None if no windows were requested."""
    findings: DataFrame
    """Result of `findings.gather`."""
    not_compared: Mapping[str, int] = field(default_factory=dict)
    """By producers' topic, the number of records that are not there to compare with outcomes."""
    closing: Balance | None = None
    """What the next period needs; None if the data does not end a period."""

    @property
    def balanced(self) -> bool:
        """Whether every record is accounted for exactly once and unaltered."""
        return not (self.kinds or self.unbalanced or self.unbalanced_windows)


def reconcile(
    request: AuditRequest,
    data: AuditData,
    confirmed_by: DataFrame | None = None,
    *,
    closes: bool = False,
) -> Verdict:
    """Compare and count everything that was read.

    With findings of an earlier pass (`confirmed_by`), only faults that it found, too, are reported.
    If the data `closes` a period, what may be completed in the next one is no fault and becomes
    `Verdict.closing`.
    """
    worker, opening = request.worker, data.opening
    events_topic = worker.topic(Role.EVENTS)
    events = checkpoint(lifecycles.trace(data.lines, opening))
    outputs = checkpoint(match.records(data.outputs))
    # Read last, so that the source of every event is there; later records count as waiting.
    data = replace(data, inputs=checkpoint(data.inputs), repartition=checkpoint(data.repartition))
    required = joined(match.expected(events), opening, "expected")
    pairs = checkpoint(match.matched(required, outputs))
    checker = OutcomeChecker(request, data, events, closes=closes)
    outcome_findings, waiting, not_compared = checker.outcomes()
    command_findings, open_commands = checker.commands()
    compared, closing = outputs, None
    if closes:
        halves = checkpoint(match.unfinished(pairs))
        closing = _closing(
            checker, outputs, pairs, waiting=waiting, halves=halves, commands=open_commands,
            required=required,
        )  # fmt: skip
        few = F.broadcast(halves)
        compared = match.among(outputs, few, match.RECORD, "left_anti")
        pairs = checkpoint(match.among(pairs, few, match.PAIR, "left_anti"))
    repeated_findings = [
        checkpoint(part)
        for part in (lifecycles.repeated(events, events_topic), match.copies(outputs))
    ]
    repeats = sum(part.count() for part in repeated_findings)
    light = [
        lifecycles.transitions(events, events_topic),
        match.differences(pairs, worker),
        *outcome_findings,
        *checker.payloads(compared),
        *(repeated_findings if request.repeats_are_faults else ()),
    ]
    heavy = [
        lifecycles.damaged(events, events_topic),
        lifecycles.steps(events, events_topic, opening),
        lifecycles.sequence_gaps(events),
        lifecycles.delivery_gaps(events, outputs, opening),
        command_findings,
        match.order(pairs, opening),
    ]
    # The heavy parts run one by one: a single plan of all of them takes Spark a minute to plan.
    parts = [checkpoint(reduce(DataFrame.unionByName, light)), *map(checkpoint, heavy)]
    found = gather([part for part in parts if not part.isEmpty()] or parts[:1])
    if confirmed_by is not None:
        found = match.among(found, confirmed_by, IDENTITY, "left_semi")
    findings = checkpoint(found)
    by_kind = {row["kind"]: row["count"] for row in findings.groupBy("kind").count().collect()}
    queue_rows = checkpoint(accounts.queue_rows(events, findings, opening))
    windows = checkpoint(accounts.window_rows(events, request.window)) if request.window else None
    totals = queue_rows.agg(
        F.count("*").alias("queues"),
        F.sum((~F.col("balanced")).cast("int")).alias("unbalanced"),
        *[F.sum(name).alias(name) for name in accounts.COUNTS],
    ).first()
    assert totals is not None  # an aggregate without groups always has one row
    counted = {name: value or 0 for name, value in totals.asDict().items()}
    return Verdict(
        inputs=data.inputs.count(),
        waiting=waiting.count(),
        lines=events.filter("nth = 1").count(),
        records=outputs.filter("copy = 1 and not late").count(),
        repeats=repeats,
        gaps=lifecycles.input_gaps(events, data.lines),
        kinds={kind: by_kind[kind] for kind in KINDS if kind in by_kind},
        unbalanced=counted.pop("unbalanced"),
        unbalanced_windows=windows.filter("not balanced").count() if windows else 0,
        totals=counted,
        events=events,
        queues=queue_rows,
        windows=windows,
        findings=findings,
        not_compared=not_compared,
        closing=closing,
    )


def _closing(
    checker: OutcomeChecker,
    outputs: DataFrame,
    pairs: DataFrame,
    *,
    waiting: DataFrame,
    halves: DataFrame,
    commands: DataFrame,
    required: DataFrame,
) -> Balance:
    """What the next period needs."""
    data, events = checker.data, checker.events
    undecided = checker.undecided()
    late = {"late": F.lit(True)}
    records = match.among(outputs, F.broadcast(halves), match.RECORD, "left_semi")
    lines = lifecycles.open_lines(events, data.lines, undecided)
    later = halves.filter("topic is null").select(required.columns)
    open_messages = lines.select("source").union(later.select("event_source"))
    inputs, digests = checker.open_inputs(waiting, undecided, open_messages.distinct())
    frames = Frames(
        lines=lines,
        inputs=inputs,
        digests=digests,
        commands=commands,
        outputs=records.select(data.outputs.columns).withColumns(late),
        expected=later.withColumns({"event_late": F.lit(True)}),
        queues=accounts.closing_rows(events, data.opening),
        partitions=lifecycles.highest_numbers(events, data.opening),
        places=match.last_places(pairs, data.opening),
    )
    return Balance(frames, _end(checker, outputs))


def _end(checker: OutcomeChecker, outputs: DataFrame) -> TopicPositions:
    """Where the next period begins."""
    data, topic_of = checker.data, checker.request.worker.topic
    end = F.max("offset").alias("offset")
    new = checker.events.filter("nth >= 0").withColumn("topic", F.lit(topic_of(Role.EVENTS)))
    read = [new, outputs.filter("not late"), data.inputs, data.commands]
    offsets = [positions(each.groupBy("topic", "partition").agg(end), 1) for each in read]
    # The last record of the hop topic is read again: only a part of its lines may be there.
    offsets.append(positions(checker.read_to.filter(F.col("topic") == topic_of(Role.HOP))))
    found = dict(data.opening.next) if data.opening else {}
    for at, offset in ((at, offset) for each in offsets for at, offset in each.items()):
        found[at] = max(found.get(at, 0), offset)
    return found
