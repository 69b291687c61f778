"""Check that each producer's record has exactly one outcome and comes out unaltered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.core.address import SEPARATOR
from ringfaust.core.catalog import Catalog
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.findings import ALTERED, DOUBLED, MISSING, UNEXPLAINED, finding
from ringfaust.spark.audit.lifecycles import message_events
from ringfaust.spark.audit.offsets import TopicOffsets
from ringfaust.spark.audit.sources import UNDECODABLE, AuditData, empty_digest, position, topics_of
from ringfaust.spark.lines import is_refusal
from ringfaust.spark.message_states import ENTRY_EVENTS

Checkpoint = Callable[[DataFrame], DataFrame]


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
    ) -> None:
        self._data = data
        self._events = events
        self._queues = queues
        self._inputs = topics_of(worker, queues)["inputs"]
        self._control = worker.topic(Role.CONTROL)
        self._repartition_topic = worker.topic(Role.HOP)
        self._checkpoint = checkpoint
        self._read_to = checkpoint(self._last_read())
        self._begins = {where: begin for where, (begin, _) in offsets.items() if begin}

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
        nowhere = both.filter(~is_input & ~self._is_gone())
        many = F.concat(
            F.col("outcomes").cast("string"), F.lit(" outcomes of one record: "), "what"
        )
        return InputOutcomes(
            [
                self._source_finding(read, MISSING, F.lit("this record has no outcome")),
                self._source_finding(twice, DOUBLED, many),
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
        """One row per source: source, outcomes (how many), what (their events).

        All copies of a record that was sent to an address are one outcome. A second copy in the
        same queue is another outcome.
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
        return counts.select("source", outcomes.alias("outcomes"), "what")

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
        pending = self._by_origin(self._events.filter("nth = 1 and event = 'pending'"))
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
        read_to = self._read_to.selectExpr(
            "topic at_topic", "partition at_partition", "offset read_to"
        )
        at = at.join(F.broadcast(read_to), ["at_topic", "at_partition"], "left")
        read = F.col("at_offset") <= F.coalesce("read_to", F.lit(-1))
        return at.filter(read), at.filter(~read)

    def _last_read(self) -> DataFrame:
        """The last offset of each partition that was certainly read."""
        causes = self._events.filter("by not in ('tick', 'start')").select(F.col("by").alias("at"))
        repartitioned = self._data.repartition.select(F.col("source").alias("at"))
        at = F.col("at")
        every = causes.unionByName(repartitioned).select(
            _topic(at).alias("topic"),
            F.regexp_extract(at, r"/(\d+)/\d+$", 1).try_cast("int").alias("partition"),
            F.regexp_extract(at, r"/(\d+)$", 1).try_cast("long").alias("offset"),
        )
        return every.groupBy("topic", "partition").agg(F.max("offset").alias("offset"))

    def commands(self) -> DataFrame:
        """Findings: commands that were read but have no line with their result."""
        answers = self._events.filter(F.col("event").isin("done", "refused", "unreadable"))
        silent = self._data.commands.join(
            answers.select(F.col("by").alias("source")).distinct(), "source", "left_anti"
        )
        read_to = self._read_to.selectExpr("topic", "partition", "offset read_to")
        silent = silent.join(F.broadcast(read_to), ["topic", "partition"]).filter(
            "offset <= read_to"
        )
        text = F.concat(F.lit("no event records the result of this command: "), "command")
        return finding(silent.select("source", "command"), MISSING, text, record=F.col("source"))

    def _is_gone(self) -> Column:
        """Whether retention removed the source from its topic."""
        gone = F.lit(False)
        at = F.col("source")
        for (topic, partition), begin in self._begins.items():
            here = at.startswith(f"{topic}/{partition}/")
            offset = F.regexp_extract(at, r"/(\d+)$", 1).try_cast("long")
            gone = F.when(here, offset < begin).otherwise(gone)
        return gone

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
        inputs = self._data.inputs.select(
            "source", F.col("digest").alias("was"), F.col("reference").alias("was_reference")
        )
        differs = "was is null or was <> digest"
        both = self._checkpoint(compared.join(inputs, "source", "left").filter(differs))
        of_inputs = _topic(F.col("source")).isin(*self._inputs) | (F.col("role") != UNDECODABLE)
        nowhere = both.filter(F.col("was").isNull() & of_inputs & ~self._is_gone())
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
