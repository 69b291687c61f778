"""The data of an audit, in one shape: inputs, commands, repartition, lines and outputs.

Payloads are read once and become digests (xxhash64, 64 bits: they detect damage, not forgery).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.protocol import headers as h
from ringfaust.protocol.control import QUERIES, type_of
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.balance import Balance, TopicPositions
from ringfaust.spark.audit.offsets import TopicOffsets
from ringfaust.spark.kafka import without_attributes
from ringfaust.spark.lake.stream import OUTPUTS
from ringfaust.spark.lines import read_lines

UNDECODABLE = "undecodable"
"""Used as a role for records of the dead topic that are no message of any queue."""

_FIELDS = (
    "queue", "sequence", "id", "source", "delivery", "consumer", "attempt", "handovers", "reason",
    "cause", "ready", "ring_size", "age_ms", "text", "time_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What to audit, and how."""

    worker: WorkerConfig
    queues: QueuesConfig
    window: str | None = None
    """Length of a time window, as a Spark interval; None counts no windows."""
    repeats_are_faults: bool = True
    """Exact copies of records are faults; otherwise they are only counted."""
    lake: str | None = None
    """Folder or URI of a lake that has events and outputs; None reads the topics."""
    compacted: frozenset[str] = frozenset()
    """The producers' topics of which Kafka keeps only the last record of each key."""
    earlier: tuple[QueuesConfig, ...] = ()
    """What was in effect before `queues`."""


@dataclass(frozen=True, slots=True)
class AuditData:
    """The records to compare."""

    inputs: DataFrame
    """topic, partition, offset, source, digest, reference (the digest of the key alone)."""
    commands: DataFrame
    """Records of the control topic, except `list`, which leaves no event: topic, partition, offset,
    source, command."""
    repartition: DataFrame
    """Records of the repartition topic: by (their own position), topic, partition, offset, source
    (the producer's position)."""
    lines: DataFrame
    """Result of `read_lines`, with `concerns`, the id of a send that waits or was refused, and
    `content`, the hash of `raw`, which is kept for gaps alone. `carried`: the line is from an
    earlier period, which has checked it."""
    outputs: DataFrame
    """role, topic, partition, offset, timestamp, digest, content (hash of the whole record),
    stand_in, the ringfaust headers, and `late`: the record is from an earlier period, which had no
    event for it."""
    opening: Balance | None = None
    """What earlier periods have left open; None if these are all records."""
    offsets: TopicOffsets = field(default_factory=dict)
    """What the topics have. What retention has removed of the inputs cannot be compared."""


def topics_of(request: AuditRequest) -> dict[str, list[str]]:
    """The topics that an audit reads: `inputs`, the producers' topics, and `ours`, all others."""
    roles = (Role.CONTROL, Role.HOP, Role.EVENTS, *OUTPUTS)
    return {
        "inputs": sorted({route.topic for route in request.queues.routes}),
        "ours": [request.worker.topic(role) for role in roles],
    }


def inputs_of(request: AuditRequest, offsets: TopicOffsets) -> tuple[list[str], list[str]]:
    """The producers' topics, and those of them without a route: their inputs are in the lake.

    The offsets are of these topics, and of all others that the lake knows.
    """
    topics = topics_of(request)
    removed = sorted({topic for topic, _ in offsets}.difference(*topics.values()))
    return topics["inputs"] + removed, removed


def checkpoint(frame: DataFrame) -> DataFrame:
    """Compute a frame now and keep it: topics grow, and all checks must see the same records.

    This is a checkpoint and not `persist`, whose plans grow with every step until planning takes
    longer than computing. If an executor is lost, its part is lost too: the audit fails and has to
    be run again. The data goes to disk, because sorting needs the memory.
    """
    return frame.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


def read_inputs(records: DataFrame) -> DataFrame:
    """Read records of the producers' topics."""
    return records.select(
        "topic", "partition", "offset", position().alias("source"),
        digest_of(F.col("key"), F.col("value"), _foreign(_headers())).alias("digest"),
        digest_of(F.col("key")).alias("reference"),
    )  # fmt: skip


def read_commands(records: DataFrame) -> DataFrame:
    """Read the records of the control topic that leave a line in the events topic."""
    kind = F.get_json_object(F.col("value").cast("string"), "$.type")
    found = records.select(
        "topic", "partition", "offset", position().alias("source"), kind.alias("command")
    )
    questions = [type_of(query) for query in QUERIES]
    return found.filter(F.col("command").isNull() | ~F.col("command").isin(questions))


def read_repartition(records: DataFrame) -> DataFrame:
    """Read records of the repartition topic, with the position each came from."""
    named = F.filter(_headers(), lambda header: header["key"] == h.SOURCE)
    return records.select(
        "topic", "partition", "offset", position().alias("by"),
        F.try_element_at(named, F.lit(-1))["value"].cast("string").alias("source"),
    )  # fmt: skip


def read_events(records: DataFrame) -> DataFrame:
    """Read records of the events topic."""
    lines = read_lines(records)
    return lines.withColumns({
        "concerns": F.when(F.col("event").isin("pending", "refused"), F.col("about")),
        "content": F.xxhash64("raw"), "raw": F.when(F.col("event") == "gap", F.col("raw")),
        "carried": F.lit(False),
    })  # fmt: skip


def read_outputs(records: DataFrame, worker: WorkerConfig) -> DataFrame:
    """Read records of the dispatched, evicted and dead topics."""
    ours = F.filter(_headers(), lambda header: header["key"].startswith(h.PREFIX))
    # The last header of a name counts: those of the producer come before ours.
    by_name = F.map_from_entries(ours)
    records.sparkSession.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    found = records.select(
        "topic", "partition", "offset", "timestamp", "key", "value",
        _foreign(without_attributes(_headers())).alias("foreign"),
        by_name.alias("ours"), F.try_element_at(ours, F.lit(-1))["key"].alias("last"),
    )  # fmt: skip
    role = F.create_map(*[F.lit(part) for r in OUTPUTS for part in (worker.topic(r), str(r))])
    # An undecodable record keeps the producer's headers, so only the last header identifies it.
    is_unreadable = (role[F.col("topic")] == str(Role.DEAD)) & (F.col("last") == h.TIME_MS)
    digest = digest_of(F.col("key"), F.col("value"), F.col("foreign"))
    names = {field: h.PREFIX + field.replace("_", "-") for field in _FIELDS}
    texts = [F.col("ours")[name].cast("string").alias(field) for field, name in names.items()]
    ours_text = F.transform(
        F.map_entries("ours"), lambda e: F.concat(e["key"], F.lit("="), F.hex(e["value"]))
    )
    return found.select(
        F.when(is_unreadable, UNDECODABLE).otherwise(role[F.col("topic")]).alias("role"),
        "topic", "partition", "offset", "timestamp", digest.alias("digest"),
        F.xxhash64(digest, F.array_sort(ours_text)).alias("content"),
        (F.col("ours")[h.UNDECODABLE_CONTENT].isNotNull() & (digest == digest_of())).alias(
            "stand_in"
        ),
        *texts, F.lit(False).alias("late"),
    )  # fmt: skip


def last_read(lines: DataFrame, repartition: DataFrame) -> DataFrame:
    """The last offset of each input partition that was certainly read: topic, partition, offset.

    Each line has its cause (`by`), and each record of the hop topic its source.
    """
    causes = lines.filter("by not in ('tick', 'start')").select(F.col("by").alias("at"))
    every = causes.unionByName(repartition.select(F.col("source").alias("at")))
    topic, partition, offset = parts_of(F.col("at"))
    every = every.select(topic.alias("topic"), partition.alias("partition"), offset.alias("offset"))
    return every.groupBy("topic", "partition").agg(F.max("offset").alias("offset"))


def parts_of(source: Column) -> tuple[Column, Column, Column]:
    """Topic, partition and offset of a position as text."""
    return (
        F.regexp_extract(source, r"^(.*)/\d+/\d+$", 1),
        F.regexp_extract(source, r"/(\d+)/\d+$", 1).try_cast("int"),
        F.regexp_extract(source, r"/(\d+)$", 1).try_cast("long"),
    )


def positions(frame: DataFrame, add: int = 0) -> TopicPositions:
    """Rows of topic, partition and offset as a mapping; `add` is added to the offsets."""
    rows = frame.select("topic", "partition", "offset").collect()
    return {(topic, n): at + add for topic, n, at in rows if topic and n is not None}


def position() -> Column:
    """The position of a record as text: topic/partition/offset."""
    return F.concat_ws("/", "topic", "partition", "offset")


def _headers() -> Column:
    return F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))


def _foreign(headers: Column) -> Column:
    """The headers that are passed on, as unambiguous text."""
    foreign = F.filter(
        headers,
        lambda header: ~header["key"].startswith(h.PREFIX) | header["key"].isin(*h.KEPT),
    )
    return F.transform(
        foreign,
        lambda header: F.concat(
            F.length(header["key"]),
            F.lit(":"),
            header["key"],
            F.coalesce(F.hex(header["value"]), F.lit("-")),
        ),
    )


def digest_of(
    key: Column | None = None, value: Column | None = None, foreign: Column | None = None
) -> Column:
    """The digest of a payload: of key, value and headers that are passed on, if there are any.

    Spark's hash ignores nulls, so they are hashed as flags.
    """
    none = F.lit(None).cast("binary")
    key, value = none if key is None else key, none if value is None else value
    foreign = F.array().cast("array<string>") if foreign is None else foreign
    return F.xxhash64(key.isNull(), key, value.isNull(), value, foreign)
