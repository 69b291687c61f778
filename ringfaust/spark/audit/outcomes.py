"""Each record of the producers' topics has exactly one fate, and came out as it went in."""

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
from ringfaust.spark.audit.lifecycles import ENTERS, once
from ringfaust.spark.audit.offsets import Extents
from ringfaust.spark.audit.sources import UNREADABLE, Material, empty_digest, position, topics_of
from ringfaust.spark.lines import is_refusal

Keep = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of the inputs."""

    findings: list[DataFrame]
    waiting: DataFrame
    """Records that nobody has read yet: source. They are no fault; Kafka keeps them."""


class Judge:
    """Compares inputs with what came of them.

    Args:
        material: what was read.
        told: as of `lives.tell`.
        keep: has Spark keep a frame that is used more than once.
        extents: where the producers' topics begin: what retention took cannot be compared.
    """

    def __init__(
        self,
        material: Material,
        told: DataFrame,
        *,
        worker: WorkerConfig,
        queues: QueuesConfig,
        extents: Extents,
        keep: Keep,
    ) -> None:
        self._material = material
        self._told = told
        self._queues = queues
        self._inputs = topics_of(worker, queues)["inputs"]
        self._control = worker.topic(Role.CONTROL)
        self._hop_topic = worker.topic(Role.HOP)
        self._keep = keep
        self._read_to = keep(self._last_read())
        self._begins = {where: begin for where, (begin, _) in extents.items() if begin}

    # --- one fate --------------------------------------------------------------------------------

    def fates(self) -> Fates:
        """Inputs without a fate, with two, and fates without an input."""
        inputs = self._material.inputs
        both = inputs.select("topic", "partition", "offset", "source").join(
            self._entries(), "source", "full_outer"
        )
        is_input = F.col("topic").isNotNull()
        fates = F.coalesce("fates", F.lit(0))
        both = self._keep(both.filter(~is_input | (fates != 1)))
        lost = both.filter(is_input & (fates < 1))
        read, waiting = self._split_read(lost)
        twice = both.filter(is_input & (fates > 1))
        nowhere = both.filter(~is_input & ~self._is_gone())
        many = F.concat(F.col("fates").cast("string"), F.lit(" fates of one record: "), "what")
        return Fates(
            [
                self._of_source(read, MISSING, F.lit("no fate of this record is told")),
                self._of_source(twice, DOUBLED, many),
                self._of_source(nowhere, UNEXPLAINED, F.lit("no record of that position is there")),
            ],
            waiting,
        )

    @staticmethod
    def _of_source(frame: DataFrame, kind: str, text: Column) -> DataFrame:
        # Its partition is the topic's, and not that of its queue.
        return finding(frame.select("source", "what", "fates"), kind, text)

    def _entries(self) -> DataFrame:
        """source, fates (how many), what (they are).

        Of a record that was sent to an address all its copies are one fate, a copy that a queue
        has twice is another.
        """
        event = F.col("event")
        kept = ("source", "event", "queue", "life")
        lines = self._told.filter("nth = 1")
        told = once(self._told).filter(event.isin(*ENTERS, "moved_out")).select(*kept)
        # Those that are refused as full or too large are told of by their dead record, also where
        # it was a commit that brought them.
        refused = lines.filter(is_refusal()).select(*kept)
        nowhere = lines.filter(event == "unrouted").select(*kept)
        is_told_again = F.col("reason").isin("queue_full", "too_large") & (event == "refused")
        turned_away = self._by_origin(
            lines.filter(event.isin("refused", "unreadable") & ~is_told_again)
        )
        turned_away = turned_away.filter(_topic(F.col("source")).isin(*self._inputs)).select(*kept)
        every = told.unionByName(refused).unionByName(nowhere).unionByName(turned_away)
        every = every.unionByName(self._undecided().select(*kept))
        is_copy = F.coalesce(
            F.col("queue").contains(SEPARATOR) & (event != "moved_out"), F.lit(False)
        )
        is_copy |= event == "unrouted"
        place = F.when(is_copy & event.isin(*ENTERS), F.struct("queue", "life"))
        counts = every.groupBy("source").agg(
            F.sum(F.when(is_copy, 0).when(event == "moved_out", -1).otherwise(1)).alias("plain"),
            F.count_if(is_copy).alias("copies"),
            (F.count(place) - F.count_distinct(place)).alias("again"),
            F.array_join(F.sort_array(F.collect_list("event")), ", ").alias("what"),
        )
        fates = F.greatest("plain", F.lit(0)) + F.least("copies", F.lit(1)) + F.col("again")
        return counts.select("source", fates.alias("fates"), "what")

    def _undecided(self) -> DataFrame:
        """Lines of records whose transaction was rolled back, or is not decided yet (R81)."""
        pending = self._by_origin(self._told.filter("nth = 1 and event = 'pending'"))
        pending = pending.filter(_topic(F.col("source")).isin(*self._inputs))
        decided = self._told.filter("nth = 1 and event = 'decided'").selectExpr(
            "partition", "xid", "step decided_step", "committed is_committed"
        )
        later = F.col("decided_step") > F.col("step")
        both = pending.join(decided, ["partition", "xid"], "left")
        ends = both.groupBy("source", "event", "queue", "life").agg(
            F.min_by(F.when(later, F.col("is_committed")), F.when(later, F.col("decided_step")))
            .alias("is_committed")
        )  # fmt: skip
        return ends.filter(~F.coalesce("is_committed", F.lit(False))).withColumn(
            "queue", F.lit(None).cast("string")
        )

    def _by_origin(self, lines: DataFrame) -> DataFrame:
        """Lines by the producer's record: where `by` is a record of the hop, by what that names."""
        hop = self._material.hop.select("by", F.col("source").alias("origin"))
        found = lines.drop("source").join(hop, "by", "left")
        return found.withColumn("source", F.coalesce("origin", "by"))

    def _split_read(self, lost: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Those that have been read, so that a fate is missing, and those that still wait."""
        hop = self._material.hop.selectExpr(
            "source", "topic hop_topic", "partition hop_partition", "offset hop_offset"
        )
        at_hop = F.col("hop_topic").isNotNull()
        # One that took the hop waits there, else where it was written.
        at = lost.join(hop, "source", "left").select(
            *lost.columns,
            *[
                F.when(at_hop, F.col(f"hop_{name}")).otherwise(F.col(name)).alias(f"at_{name}")
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
        """The last position of each partition that is known to have been read."""
        causes = self._told.filter("by not in ('tick', 'start')").select(F.col("by").alias("at"))
        hopped = self._material.hop.select(F.col("source").alias("at"))
        at = F.col("at")
        every = causes.unionByName(hopped).select(
            _topic(at).alias("topic"),
            F.regexp_extract(at, r"/(\d+)/\d+$", 1).try_cast("int").alias("partition"),
            F.regexp_extract(at, r"/(\d+)$", 1).try_cast("long").alias("offset"),
        )
        return every.groupBy("topic", "partition").agg(F.max("offset").alias("offset"))

    def commands(self) -> DataFrame:
        """Findings: commands that were read, but of which no line tells what was done."""
        answers = self._told.filter(F.col("event").isin("done", "refused", "unreadable"))
        silent = self._material.commands.join(
            answers.select(F.col("by").alias("source")).distinct(), "source", "left_anti"
        )
        read_to = self._read_to.selectExpr("topic", "partition", "offset read_to")
        silent = silent.join(F.broadcast(read_to), ["topic", "partition"]).filter(
            "offset <= read_to"
        )
        text = F.concat(F.lit("no event tells what became of this command: "), "command")
        return finding(silent.select("source", "command"), MISSING, text, record=F.col("source"))

    def _is_gone(self) -> Column:
        """Is the source before what its topic still has?"""
        gone = F.lit(False)
        at = F.col("source")
        for (topic, partition), begin in self._begins.items():
            here = at.startswith(f"{topic}/{partition}/")
            offset = F.regexp_extract(at, r"/(\d+)$", 1).try_cast("long")
            gone = F.when(here, offset < begin).otherwise(gone)
        return gone

    # --- unaltered -------------------------------------------------------------------------------

    def payloads(self, seen: DataFrame) -> list[DataFrame]:
        """Findings: records that went out other than they came in.

        Args:
            seen: as of `match.records`.
        """
        compared = seen.filter(
            "not (role = 'unreadable' and reason = 'too_large') and not stand_in"
        ).select(
            "role", "topic", "partition", "offset", "digest", "queue",
            F.col("sequence").cast("long").alias("sequence"), "id", "source",
        )  # fmt: skip
        hop = self._material.hop.select("by", F.col("source").alias("origin"))
        is_hop = F.col("source").startswith(self._hop_topic + "/")
        # Only records that could not be read behind the hop name it as their source: few.
        behind = compared.filter((F.col("role") == UNREADABLE) & is_hop)
        direct = compared.filter((F.col("role") != UNREADABLE) | ~is_hop)
        behind = behind.join(hop, behind["source"] == hop["by"]).withColumn(
            "source", F.col("origin")
        )
        compared = direct.unionByName(behind.drop("by", "origin"))
        inputs = self._material.inputs.select(
            "source", F.col("digest").alias("was"), F.col("reference").alias("was_reference")
        )
        differs = "was is null or was <> digest"
        both = self._keep(compared.join(inputs, "source", "left").filter(differs))
        of_inputs = _topic(F.col("source")).isin(*self._inputs) | (F.col("role") != UNREADABLE)
        nowhere = both.filter(F.col("was").isNull() & of_inputs & ~self._is_gone())
        altered = both.filter("was is not null")
        if not altered.isEmpty():
            altered = self._but_short(altered)
        text = F.lit("its key, value or headers are not those of its source")
        from_nowhere = F.lit("its source is not there")
        return [
            finding(altered, ALTERED, text, record=position()),
            finding(nowhere, UNEXPLAINED, from_nowhere, record=position()),
        ]

    def _but_short(self, other: DataFrame) -> DataFrame:
        """Without evicted records that are short because their queue is set so (R6)."""
        form = (
            F.when(F.col("role") != str(Role.EVICTED), None)
            .when(F.col("digest") == empty_digest(), "none")
            .when(F.col("digest") == F.col("was_reference"), "reference")
        )
        other = other.withColumn("form", form)
        names = other.filter("form is not null").select("queue").distinct()
        configured = _form_of(self._queues)
        by_files = names.withColumn("form", configured("queue"))
        while_running = self._told.filter("event = 'configured'").select(
            "queue", F.get_json_object("settings", "$.evicted_payload").alias("form")
        )
        allowed = by_files.unionByName(while_running).filter("form is not null").distinct()
        return other.join(allowed, ["queue", "form"], "left_anti")


def _form_of(queues: QueuesConfig):  # type: ignore[no-untyped-def]
    """A function of Spark: what evicted records of a queue carry, by the configuration."""
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
    """The topic of topic/partition/offset."""
    return F.regexp_extract(source, r"^(.*)/\d+/\d+$", 1)
