"""Check that each producer's record has exactly one outcome and comes out unaltered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.core.address import SEPARATOR
from ringfaust.core.catalog import Catalog
from ringfaust.protocol.lifecycle import ENTRY_EVENTS
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.findings import ALTERED, DOUBLED, MISSING, UNEXPLAINED, finding
from ringfaust.spark.audit.lifecycles import message_events
from ringfaust.spark.audit.offsets import TopicOffsets
from ringfaust.spark.audit.sources import (
    UNDECODABLE,
    AuditData,
    empty_digest,
    last_read,
    of_removed_routes,
    parts_of,
    position,
    positions,
    topics_of,
)
from ringfaust.spark.lines import is_refusal

Checkpoint = Callable[[DataFrame], DataFrame]
_BEGINS = "topic string, partition int, begin long, floor long, end long"
"""The first record that must be there, the first that no earlier period has read, and for a removed
route the first that the lake does not have: null for others."""


@dataclass(frozen=True, slots=True)
class InputOutcomes:
    """The outcomes of the input records."""

    findings: list[DataFrame]
    """Inputs with no outcome or several, and outcomes without an input."""
    waiting: DataFrame
    """Sources of the records that no worker has read yet. They are safe in Kafka, and no fault."""


class OutcomeChecker:
    """Compares the inputs with their outcomes.

    Args:
        data: what was read.
        events: result of `lifecycles.trace`.
        worker: names the topics.
        queues: the routes, and what evicted records carry.
        offsets: where the producers' topics begin: what retention removed cannot be compared.
        checkpoint: makes Spark compute and keep a frame that is used more than once.
        closes: the data ends with a period. What was caused by the last record read may be partly
            in the next one.
    """

    def __init__(
        self,
        data: AuditData,
        events: DataFrame,
        *,
        worker: WorkerConfig,
        queues: QueuesConfig,
        offsets: TopicOffsets,
        checkpoint: Checkpoint,
        closes: bool = False,
    ) -> None:
        self._data = data
        self._events = events
        self._queues = queues
        topics = topics_of(worker, queues)
        self._removed = of_removed_routes(topics, offsets)
        self._inputs = topics["inputs"] + self._removed
        self._control = worker.topic(Role.CONTROL)
        self._repartition_topic = worker.topic(Role.HOP)
        self._checkpoint = checkpoint
        self._closes = closes
        self.read_to = checkpoint(last_read(events.filter("nth >= 0"), data.repartition))
        self._begins = self._first_offsets(offsets)

    def _first_offsets(self, offsets: TopicOffsets) -> DataFrame:
        """Rows of _BEGINS.

        What Kafka has dropped and the lake keeps must be there: from the beginning of the period,
        or from the first record that the lake has.
        """
        earlier = self._data.opening.next if self._data.opening else {}
        floors = {(t, p): at for t in self._inputs for p, at in earlier.get(t, {}).items()}
        begins = {at: begin for at, (begin, _) in offsets.items()}
        ends = {at: end for at, (_, end) in offsets.items() if at[0] in self._removed}
        frame = self._begin_rows(begins, floors, ends)
        if any(begin > floors.get(at, 0) for at, begin in begins.items() if at[0] in self._inputs):
            dropped = self._data.inputs.join(F.broadcast(frame), ["topic", "partition"])
            dropped = dropped.filter("offset >= floor and offset < begin")
            first = dropped.groupBy("topic", "partition").agg(F.min("offset").alias("offset"))
            for topic, of in positions(first).items():
                begins |= {(topic, p): floors.get((topic, p), at) for p, at in of.items()}
            frame = self._begin_rows(begins, floors, ends)
        return frame

    def _begin_rows(
        self,
        begins: Mapping[tuple[str, int], int],
        floors: Mapping[tuple[str, int], int],
        ends: Mapping[tuple[str, int], int],
    ) -> DataFrame:
        every = sorted(begins.keys() | floors.keys())
        rows = [(*at, begins.get(at, 0), floors.get(at, 0), ends.get(at)) for at in every]
        return self._events.sparkSession.createDataFrame(rows, _BEGINS)

    # --- one outcome -----------------------------------------------------------------------------

    def outcomes(self) -> InputOutcomes:
        """Find inputs with no outcome or several, and outcomes without an input."""
        inputs = self._data.inputs
        both = inputs.select("topic", "partition", "offset", "source").join(
            self._entries(), "source", "full_outer"
        )
        is_input = F.col("topic").isNotNull()
        outcomes = F.coalesce("outcomes", F.lit(0))
        both = self._checkpoint(both.filter(~is_input | (outcomes != 1)))
        lost = both.filter(is_input & (outcomes < 1))
        read, waiting = self._split_by_progress(lost)
        twice = both.filter(is_input & (outcomes > 1))
        others = self._with_begins(both.filter(~is_input))
        nowhere = others.filter("not is_gone and not is_earlier")
        again = others.filter("is_earlier and more_outcomes > 0")
        many = F.concat(
            F.col("outcomes").cast("string"), F.lit(" outcomes of one record: "), "what"
        )
        return InputOutcomes(
            [
                self._source_finding(read, MISSING, F.lit("this record has no outcome")),
                self._source_finding(twice, DOUBLED, many),
                self._source_finding(
                    again,
                    DOUBLED,
                    F.concat(F.lit("one more outcome of an earlier record: "), "what"),
                ),
                self._source_finding(
                    nowhere, UNEXPLAINED, F.lit("there is no record at this position")
                ),
            ],
            waiting,
        )

    @staticmethod
    def _source_finding(frame: DataFrame, kind: str, text: Column) -> DataFrame:
        # Without the partition: it is that of the input topic, not that of the queue.
        return finding(frame.select("source", "what", "outcomes"), kind, text)

    def _entries(self) -> DataFrame:
        """One row per source: source, outcomes (how many), what (their events), more_outcomes.

        All copies of a record that was sent to an address are one outcome. A second copy in the
        same queue is another outcome. `more_outcomes` leaves out the first copies: an address may
        keep a record and copy it to a queue later.
        """
        event = F.col("event")
        kept = ("source", "event", "queue", "generation")
        lines = self._events.filter("nth = 1")
        events = (
            message_events(self._events)
            .filter(event.isin(*ENTRY_EVENTS, "moved_out"))
            .select(*kept)
        )
        # A send that was refused as queue_full or too_large has a dead line as well, which is the
        # one to count: it is also there if a commit sent the message.
        refused = lines.filter(is_refusal()).select(*kept)
        nowhere = lines.filter(event == "unrouted").select(*kept)
        has_dead_record = F.col("reason").isin("queue_full", "too_large") & (event == "refused")
        turned_away = self._by_origin(
            lines.filter(event.isin("refused", "unreadable") & ~has_dead_record)
        )
        turned_away = turned_away.filter(_topic(F.col("source")).isin(*self._inputs)).select(*kept)
        every = events.unionByName(refused).unionByName(nowhere).unionByName(turned_away)
        pending = self._pending()
        every = every.unionByName(self._uncommitted(pending).select(*kept))
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

    def _uncommitted(self, pending: DataFrame) -> DataFrame:
        """The lines of records whose transaction was rolled back or is still undecided (R81)."""
        return pending.filter(~F.coalesce("is_committed", F.lit(False)))

    def _refused_in_commits(self, pending: DataFrame, entries: DataFrame) -> DataFrame:
        """Records that a commit could not send, for example repeats (R119).

        Their refusal names the message and the commit, but not the record.
        """
        refused = self._events.filter("nth = 1 and event = 'refused'").select(
            "partition", F.col("by").alias("decided_by"), "concerns"
        )
        left_out = pending.filter("is_committed").join(
            refused, ["partition", "decided_by", "concerns"], "left_semi"
        )
        left_out = left_out.join(entries.select("source"), "source", "left_anti")
        return left_out.withColumn("event", F.lit("refused"))

    def _pending(self) -> DataFrame:
        """The lines of records that wait, or waited, for the decision about their transaction.

        With `is_committed` and `decided_by` (null: it is undecided), and without the queue.
        """
        pending = self._by_origin(self._events.filter("nth in (1, -1) and event = 'pending'"))
        pending = pending.filter(_topic(F.col("source")).isin(*self._inputs))
        decided = self._events.filter("nth = 1 and event = 'decided'").selectExpr(
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
        lines = self._by_origin(self._events.filter("nth in (1, -1) and event = 'pending'"))
        lines = lines.join(waiting.distinct(), "source", "left_semi")
        # The next period does not read the record of the hop topic again.
        return lines.withColumn("by", F.col("source")).select(self._events.columns)

    def _by_origin(self, lines: DataFrame) -> DataFrame:
        """Set `source` to the producer's record, also where `by` is a repartitioned record."""
        repartition = self._data.repartition.select("by", F.col("source").alias("origin"))
        found = lines.drop("source").join(repartition, "by", "left")
        return found.withColumn("source", F.coalesce("origin", "by"))

    def _split_by_progress(self, lost: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Split into records that were read, so their outcome is missing, and waiting records."""
        repartition = self._data.repartition.selectExpr(
            "source",
            "topic repartitioned_topic",
            "partition repartitioned_partition",
            "offset repartitioned_offset",
        )
        is_repartitioned = F.col("repartitioned_topic").isNotNull()
        # A repartitioned record waits in the repartition topic, any other in its own topic.
        at = lost.join(repartition, "source", "left").select(
            *lost.columns,
            *[
                F.when(is_repartitioned, F.col(f"repartitioned_{name}"))
                .otherwise(F.col(name))
                .alias(f"at_{name}")
                for name in ("topic", "partition", "offset")
            ],
        )
        read_to = self.read_to.selectExpr(
            "topic at_topic", "partition at_partition", "offset read_to"
        )
        at = at.join(F.broadcast(read_to), ["at_topic", "at_partition"], "left")
        read_to_end = F.coalesce("read_to", F.lit(-1)) - F.lit(int(self._closes))
        read = F.col("at_offset") <= read_to_end
        return at.filter(read), at.filter(~read)

    def commands(self) -> tuple[DataFrame, DataFrame]:
        """Commands without a result: findings, and those that may have one in the next period."""
        answers = self._events.filter(F.col("event").isin("done", "refused", "unreadable"))
        silent = self._data.commands.join(
            answers.select(F.col("by").alias("source")).distinct(), "source", "left_anti"
        )
        read_to = self.read_to.selectExpr("topic", "partition", "offset read_to")
        silent = silent.join(F.broadcast(read_to), ["topic", "partition"], "left")
        read_to_end = F.coalesce("read_to", F.lit(-1)) - F.lit(int(self._closes))
        read = silent.filter(F.col("offset") <= read_to_end).select("source", "command")
        text = F.concat(F.lit("no event records the result of this command: "), "command")
        later = silent.filter(F.col("offset") > read_to_end).select(self._data.commands.columns)
        return finding(read, MISSING, text, record=F.col("source")), later

    def open_inputs(
        self, waiting: DataFrame, undecided: DataFrame, others: DataFrame
    ) -> tuple[DataFrame, DataFrame]:
        """The inputs that the next period needs: those without an outcome, and for comparison.

        Args:
            waiting: `InputOutcomes.waiting`.
            undecided: result of `undecided`.
            others: with the sources of all messages that may have an output later.
        """
        sources = waiting.select("source").unionByName(undecided.select("source")).distinct()
        unsettled = self._data.inputs.join(sources, "source", "left_semi")
        digests = self._known_inputs().join(others.select("source"), "source", "left_semi")
        columns = self._data.inputs.columns
        return unsettled.select(columns), digests.select(columns)

    def _known_inputs(self) -> DataFrame:
        """All inputs that outputs are compared with."""
        if self._data.opening is None:
            return self._data.inputs
        both = self._data.inputs.unionByName(self._data.opening.frames.digests)
        return both.dropDuplicates(["source"])

    def _with_begins(self, frame: DataFrame) -> DataFrame:
        """Add whether nobody has the source any more, and whether it is of an earlier period."""
        topic, partition, offset = parts_of(F.col("source"))
        # Names that no frame has: these columns are dropped again.
        at = {"_topic": topic, "_partition": partition, "_offset": offset}
        begins = self._begins.selectExpr(
            "topic _topic", "partition _partition", "begin _begin", "floor _floor", "end _end"
        )
        frame = frame.withColumns(at).join(F.broadcast(begins), ["_topic", "_partition"], "left")
        return frame.withColumns({
            "is_gone": F.coalesce(F.expr("_offset < _begin OR _offset >= _end"), F.lit(False)),
            "is_earlier": F.coalesce(F.col("_offset") < F.col("_floor"), F.lit(False)),
        }).drop("_topic", "_partition", "_offset", "_begin", "_floor", "_end")  # fmt: skip

    # --- unaltered -------------------------------------------------------------------------------

    def payloads(self, outputs: DataFrame) -> list[DataFrame]:
        """Findings: output records that differ from their source.

        Args:
            outputs: result of `match.records`.
        """
        compared = outputs.filter(
            "not (role = 'undecodable' and reason = 'too_large') and not stand_in"
        ).select(
            "role", "topic", "partition", "offset", "digest", "queue",
            F.col("sequence").cast("long").alias("sequence"), "id", "source",
        )  # fmt: skip
        repartition = self._data.repartition.select("by", F.col("source").alias("origin"))
        of_repartition = F.col("source").startswith(self._repartition_topic + "/")
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
        both = self._checkpoint(compared.join(inputs, "source", "left").filter(differs))
        of_inputs = _topic(F.col("source")).isin(*self._inputs) | (F.col("role") != UNDECODABLE)
        nowhere = self._with_begins(both.filter(F.col("was").isNull() & of_inputs))
        nowhere = nowhere.filter("not is_gone and not is_earlier")
        altered = both.filter("was is not null")
        if not altered.isEmpty():
            altered = self._drop_configured_short(altered)
        text = F.lit("its key, value or headers differ from those of its source")
        from_nowhere = F.lit("its source does not exist")
        return [
            finding(altered, ALTERED, text, record=position()),
            finding(nowhere, UNEXPLAINED, from_nowhere, record=position()),
        ]

    def _drop_configured_short(self, other: DataFrame) -> DataFrame:
        """Drop evicted records whose queue is configured to omit the payload (R6)."""
        form = (
            F.when(F.col("role") != str(Role.EVICTED), None)
            .when(F.col("digest") == empty_digest(), "none")
            .when(F.col("digest") == F.col("was_reference"), "reference")
        )
        other = other.withColumn("form", form)
        names = other.filter("form is not null").select("queue").distinct()
        configured = _payload_form(self._queues)
        by_files = names.withColumn("form", configured("queue"))
        while_running = self._events.filter("event = 'configured'").select(
            "queue", F.get_json_object("settings", "$.evicted_payload").alias("form")
        )
        allowed = by_files.unionByName(while_running).filter("form is not null").distinct()
        return other.join(allowed, ["queue", "form"], "left_anti")


def _payload_form(queues: QueuesConfig):  # type: ignore[no-untyped-def]
    """A Spark function: the configured payload of a queue's evicted records."""
    addresses = {name: each.model_dump() for name, each in queues.addresses.items()}
    tables = (dict(queues.queues), dict(queues.settings), addresses)
    made: list[Catalog] = []

    @F.udf("string")
    def form(queue: str) -> str:
        if not made:
            made.append(Catalog(*tables))
        return str(made[0].spec(queue, {}).evicted_payload)

    return form


def _topic(source: Column) -> Column:
    """The topic in topic/partition/offset."""
    return F.regexp_extract(source, r"^(.*)/\d+/\d+$", 1)
