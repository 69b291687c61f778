"""Check that each producer's record has exactly one outcome and comes out unaltered."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.config import QueuesConfig
from ringfaust.core.address import SEPARATOR
from ringfaust.core.catalog import Catalog, catalog_of
from ringfaust.protocol.lifecycle import ENTRY_EVENTS
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.findings import Kind, finding
from ringfaust.spark.audit.sources import (
    UNDECODABLE,
    AuditData,
    AuditRequest,
    checkpoint,
    digest_of,
    inputs_of,
    last_read,
    parts_of,
    position,
    positions,
    topics_of,
)
from ringfaust.spark.lines import REFUSAL

_BEGINS = "topic string, partition int, begin long, floor long, end long"
"""The first record that must be there, the first that no earlier period has read, and for a removed
route the first that the lake does not have: null for others."""


class OutcomeChecker:
    """Compares the inputs with their outcomes.

    If the data `closes` a period, what was caused by the last record read may be partly in the next
    one.
    """

    def __init__(
        self, request: AuditRequest, data: AuditData, events: DataFrame, *, closes: bool
    ) -> None:
        self.request = request
        self.data = data
        self.events = events
        self._inputs, self._removed = inputs_of(request, data.offsets)
        self._closes = closes
        self.read_to = checkpoint(last_read(events.filter("nth >= 0"), data.repartition))
        self._begins = self._first_offsets()

    def _first_offsets(self) -> DataFrame:
        """Rows of _BEGINS.

        What Kafka has dropped and the lake keeps must be there: from the beginning of the period,
        or from the first record that the lake has.
        """
        earlier = self.data.opening.next if self.data.opening else {}
        floors = {at: offset for at, offset in earlier.items() if at[0] in self._inputs}
        begins = {at: begin for at, (begin, _) in self.data.offsets.items()}
        ends = {at: end for at, (_, end) in self.data.offsets.items() if at[0] in self._removed}

        def rows() -> DataFrame:
            every = sorted(begins.keys() | floors.keys())
            found = [(*at, begins.get(at, 0), floors.get(at, 0), ends.get(at)) for at in every]
            return self.events.sparkSession.createDataFrame(found, _BEGINS)

        if any(begin > floors.get(at, 0) for at, begin in begins.items() if at[0] in self._inputs):
            dropped = self.data.inputs.join(F.broadcast(rows()), ["topic", "partition"])
            dropped = dropped.filter("offset >= floor and offset < begin")
            first = dropped.groupBy("topic", "partition").agg(F.min("offset").alias("offset"))
            begins |= {at: floors.get(at, offset) for at, offset in positions(first).items()}
        for at, (_, end) in self.data.offsets.items():
            if at[0] in self.request.compacted:  # any record may be missing
                begins[at] = end
        return rows()

    # --- one outcome -----------------------------------------------------------------------------

    def outcomes(self) -> tuple[list[DataFrame], DataFrame, dict[str, int]]:
        """Findings: inputs with no outcome or several, and outcomes without an input.

        Also the inputs that no worker has read yet, which are safe in Kafka and no fault, and by
        topic the number of inputs with an outcome that are not there to compare.
        """
        inputs = self.data.inputs
        both = inputs.select("topic", "partition", "offset", "source").join(
            self._entries(), "source", "full_outer"
        )
        is_input = F.col("topic").isNotNull()
        outcomes = F.coalesce("outcomes", F.lit(0))
        both = checkpoint(both.filter(~is_input | (outcomes != 1)))
        lost = both.filter(is_input & (outcomes < 1))
        read, waiting = self._split_by_progress(lost)
        twice = both.filter(is_input & (outcomes > 1))
        others = checkpoint(self._with_begins(both.filter(~is_input)))
        nowhere = others.filter("not is_gone and not is_earlier")
        again = others.filter("is_earlier and more_outcomes > 0")
        many = F.format_string("%d outcomes of one record: %s", "outcomes", "what")
        one_more = F.format_string("one more outcome of an earlier record: %s", "what")
        found = (
            (read, Kind.MISSING, F.lit("this record has no outcome")),
            (twice, Kind.DOUBLED, many),
            (again, Kind.DOUBLED, one_more),
            (nowhere, Kind.UNEXPLAINED, F.lit("there is no record at this position")),
        )
        # Without the partition: it is that of the input topic, not that of the queue.
        columns = ("source", "what", "outcomes")
        findings = [finding(rows.select(*columns), kind, text) for rows, kind, text in found]
        return findings, waiting, _count_gone(others)

    def _entries(self) -> DataFrame:
        """One row per source: source, outcomes (how many), what (their events), more_outcomes.

        All copies of a record that was sent to an address are one outcome. A second copy in the
        same queue is another outcome. `more_outcomes` leaves out the first copies: an address may
        keep a record and copy it to a queue later.
        """
        event = F.col("event")
        kept = ("source", "event", "queue", "generation")
        lines = self.events.filter("nth = 1")
        # A send that was refused as queue_full or too_large has a dead line as well, which is the
        # one to count: it is also there if a commit sent the message.
        ends = event.isin(*ENTRY_EVENTS, "moved_out", "unrouted") | F.expr(REFUSAL)
        has_dead_record = F.col("reason").isin("queue_full", "too_large") & (event == "refused")
        turned_away = self._by_origin(
            lines.filter(event.isin("refused", "unreadable") & ~has_dead_record)
        )
        turned_away = turned_away.filter(self._is_of_input()).select(*kept)
        every = lines.filter(ends).select(*kept).unionByName(turned_away)
        pending = self._pending()
        # Those whose transaction was rolled back or is still undecided.
        uncommitted = pending.filter(~F.coalesce("is_committed", F.lit(False)))
        every = every.unionByName(uncommitted.select(*kept))
        every = every.unionByName(self._refused_in_commits(pending, every).select(*kept))
        is_copy = F.coalesce(
            F.col("queue").contains(SEPARATOR) & (event != "moved_out"), F.lit(False)
        )
        is_copy |= event == "unrouted"
        place = F.when(is_copy & event.isin(*ENTRY_EVENTS), F.struct("queue", "generation"))
        counts = every.groupBy("source").agg(
            F.sum(F.when(is_copy, 0).when(event == "moved_out", -1).otherwise(1)).alias("plain"),
            F.count_if(is_copy).alias("copies"),
            (F.count(place) - F.count_distinct(place)).alias("again"),
            F.array_join(F.sort_array(F.collect_list("event")), ", ").alias("what"),
        )
        outcomes = F.greatest("plain", F.lit(0)) + F.least("copies", F.lit(1)) + F.col("again")
        more = outcomes - F.least("copies", F.lit(1))
        return counts.select(
            "source", outcomes.alias("outcomes"), more.alias("more_outcomes"), "what"
        )

    def _refused_in_commits(self, pending: DataFrame, entries: DataFrame) -> DataFrame:
        """Records that a commit could not send, for example repeats (R119).

        Their refusal names the message and the commit, but not the record.
        """
        refused = self.events.filter("nth = 1 and event = 'refused'").select(
            "partition", F.col("by").alias("decided_by"), "concerns"
        )
        left_out = pending.filter("is_committed").join(
            refused, ["partition", "decided_by", "concerns"], "left_semi"
        )
        left_out = left_out.join(entries.select("source"), "source", "left_anti")
        return left_out.withColumn("event", F.lit("refused"))

    def _pending(self) -> DataFrame:
        """The lines of records that wait, or waited, for the decision on their transaction (R81).

        With `is_committed` and `decided_by` (null: it is undecided), and without the queue.
        """
        pending = self._pending_lines().filter(self._is_of_input())
        decided = self.events.filter("nth = 1 and event = 'decided'").selectExpr(
            "partition", "xid", "step decided_step", "committed is_committed", "by decided_by"
        )
        later = F.col("decided_step") > F.col("step")
        both = pending.join(decided, ["partition", "xid"], "left")
        decision = F.struct("is_committed", "decided_by")
        ends = both.groupBy("source", "event", "generation", "partition", "concerns").agg(
            F.min_by(F.when(later, decision), F.when(later, F.col("decided_step")))
            .alias("decision")
        )  # fmt: skip
        return ends.select("*", "decision.*").withColumn("queue", F.lit(None).cast("string"))

    def undecided(self) -> DataFrame:
        """The lines of sends that wait for the decision about their transaction."""
        waiting = self._pending().filter("is_committed is null").select("source")
        lines = self._pending_lines().join(waiting.distinct(), "source", "left_semi")
        # The next period does not read the record of the hop topic again.
        return lines.withColumn("by", F.col("source")).select(self.events.columns)

    def _pending_lines(self) -> DataFrame:
        return self._by_origin(self.events.filter("nth in (1, -1) and event = 'pending'"))

    def _is_of_input(self) -> Column:
        """Whether the source is a producer's record."""
        return parts_of(F.col("source"))[0].isin(*self._inputs)

    def _by_origin(self, lines: DataFrame) -> DataFrame:
        """Set `source` to the producer's record, also where `by` is a repartitioned record."""
        repartition = self.data.repartition.select("by", F.col("source").alias("origin"))
        found = lines.drop("source").join(repartition, "by", "left")
        return found.withColumn("source", F.coalesce("origin", "by"))

    def _read_and_waiting(self, frame: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Split records into those that were read, and those that wait."""
        read_to = F.broadcast(self.read_to.withColumnRenamed("offset", "read_to"))
        frame = frame.join(read_to, ["topic", "partition"], "left")
        end = F.coalesce("read_to", F.lit(-1)) - F.lit(int(self._closes))
        return frame.filter(F.col("offset") <= end), frame.filter(F.col("offset") > end)

    def _split_by_progress(self, lost: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Split into records that were read, so their outcome is missing, and waiting records."""
        # A repartitioned record waits in the repartition topic, any other in its own topic.
        place = ("topic", "partition", "offset")
        copied = [f"{name} repartitioned_{name}" for name in place]
        repartition = self.data.repartition.selectExpr("source", *copied)
        places = {name: F.coalesce(f"repartitioned_{name}", name) for name in place}
        return self._read_and_waiting(lost.join(repartition, "source", "left").withColumns(places))

    def commands(self) -> tuple[DataFrame, DataFrame]:
        """Commands without a result: findings, and those that may have one in the next period."""
        answers = self.events.filter(F.col("event").isin("done", "refused", "unreadable"))
        silent = self.data.commands.join(
            answers.select(F.col("by").alias("source")).distinct(), "source", "left_anti"
        )
        read, later = self._read_and_waiting(silent)
        text = F.concat(F.lit("no event records the result of this command: "), "command")
        read = read.select("source", "command")
        found = finding(read, Kind.MISSING, text, record=F.col("source"))
        return found, later.select(self.data.commands.columns)

    def open_inputs(
        self, waiting: DataFrame, undecided: DataFrame, others: DataFrame
    ) -> tuple[DataFrame, DataFrame]:
        """The inputs that the next period needs: those without an outcome, and for comparison.

        `waiting` are the inputs that no worker has read yet, `undecided` is the result of that
        method, and `others` have the sources of all messages that may have an output later.
        """
        sources = waiting.select("source").unionByName(undecided.select("source")).distinct()
        unsettled = self.data.inputs.join(sources, "source", "left_semi")
        digests = self._known_inputs().join(others.select("source"), "source", "left_semi")
        columns = self.data.inputs.columns
        return unsettled.select(columns), digests.select(columns)

    def _known_inputs(self) -> DataFrame:
        """All inputs that outputs are compared with."""
        if self.data.opening is None:
            return self.data.inputs
        both = self.data.inputs.unionByName(self.data.opening.frames.digests)
        return both.dropDuplicates(["source"])

    def _with_begins(self, frame: DataFrame) -> DataFrame:
        """Add whether the audit has not got the source, and whether it is of an earlier period.

        It does not read topics without a route that no lake has.
        """
        topic, partition, offset = parts_of(F.col("source"))
        # Names that no frame has: these columns are dropped again.
        at = {"_topic": topic, "_partition": partition, "_offset": offset}
        read = [topic for topics in topics_of(self.request).values() for topic in topics]
        is_read = F.col("_topic").isin("", *read, *self._removed)
        begins = self._begins.selectExpr(
            "topic _topic", "partition _partition", "begin _begin", "floor _floor", "end _end"
        )
        frame = frame.withColumns(at).join(F.broadcast(begins), ["_topic", "_partition"], "left")
        return frame.withColumns({
            "is_gone": ~is_read
            | F.coalesce(F.expr("_offset < _begin OR _offset >= _end"), F.lit(False)),
            "is_earlier": F.coalesce(F.col("_offset") < F.col("_floor"), F.lit(False)),
        }).drop("_topic", "_partition", "_offset", "_begin", "_floor", "_end")  # fmt: skip

    # --- unaltered -------------------------------------------------------------------------------

    def payloads(self, outputs: DataFrame) -> list[DataFrame]:
        """Findings: output records that differ from their source.

        `outputs` are the result of `match.records`.
        """
        compared = outputs.filter(
            "not (role = 'undecodable' and reason = 'too_large') and not stand_in"
        ).select(
            "role", "topic", "partition", "offset", "digest", "queue",
            F.col("sequence").cast("long").alias("sequence"), "id", "source",
        )  # fmt: skip
        repartition = self.data.repartition.select("by", F.col("source").alias("origin"))
        of_repartition = F.col("source").startswith(self.request.worker.topic(Role.HOP) + "/")
        # Only undecodable records of the repartition topic have it as their source; they are few.
        behind = compared.filter((F.col("role") == UNDECODABLE) & of_repartition)
        direct = compared.filter((F.col("role") != UNDECODABLE) | ~of_repartition)
        behind = behind.join(repartition, behind["source"] == repartition["by"]).withColumn(
            "source", F.col("origin")
        )
        compared = direct.unionByName(behind.drop("by", "origin"))
        inputs = self._known_inputs().select(
            "source", F.col("digest").alias("was"), F.col("reference").alias("was_reference")
        )
        differs = "was is null or was <> digest"
        both = checkpoint(compared.join(inputs, "source", "left").filter(differs))
        of_inputs = self._is_of_input() | (F.col("role") != UNDECODABLE)
        nowhere = self._with_begins(both.filter(F.col("was").isNull() & of_inputs))
        nowhere = nowhere.filter("not is_gone and not is_earlier")
        altered = both.filter("was is not null")
        if not altered.isEmpty():
            altered = self._drop_configured_short(altered)
        text = F.lit("its key, value or headers differ from those of its source")
        from_nowhere = F.lit("its source does not exist")
        return [
            finding(altered, Kind.ALTERED, text, record=position()),
            finding(nowhere, Kind.UNEXPLAINED, from_nowhere, record=position()),
        ]

    def _drop_configured_short(self, other: DataFrame) -> DataFrame:
        """Drop evicted records whose queue is configured to omit the payload (R6)."""
        form = (
            F.when(F.col("role") != str(Role.EVICTED), None)
            .when(F.col("digest") == digest_of(), "none")
            .when(F.col("digest") == F.col("was_reference"), "reference")
        )
        other = other.withColumn("form", form)
        names = other.filter("form is not null").select("queue").distinct()
        configured = _payload_forms([self.request.queues, *self.request.earlier])
        by_files = names.withColumn("form", F.explode(configured("queue")))
        while_running = self.events.filter("event = 'configured'").select(
            "queue", F.get_json_object("settings", "$.evicted_payload").alias("form")
        )
        allowed = by_files.unionByName(while_running).filter("form is not null").distinct()
        return other.join(allowed, ["queue", "form"], "left_anti")


def _count_gone(others: DataFrame) -> dict[str, int]:
    """By topic, the number of records with an outcome that are not there to compare."""
    gone = others.filter("is_gone and not is_earlier and outcomes > 0")
    rows = gone.groupBy(parts_of(F.col("source"))[0].alias("topic")).count().collect()
    return {row["topic"]: row["count"] for row in sorted(rows)}


def _payload_forms(every: Iterable[QueuesConfig]):  # type: ignore[no-untyped-def]
    """A Spark function: the payloads of a queue's evicted records by these configurations."""
    documents = [queues.document() for queues in every]
    made: list[Catalog] = []

    @F.udf("array<string>")
    def forms(queue: str) -> list[str]:
        if not made:
            made.extend(map(catalog_of, documents))
        return [str(each.spec(queue, {}).evicted_payload) for each in made]

    return forms
