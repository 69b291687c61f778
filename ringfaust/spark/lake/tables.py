"""The lake's tables: names, paths and columns.

`transitions` holds the lines of the events topic and nothing else, so its columns are those of
`ringfaust.spark.lines` and a few of the lake's own. docs/lake.md says what each column means.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ringfaust.core.model import COUNTS
from ringfaust.errors import RingfaustError
from ringfaust.spark.lake.views import COUNTED, ENDED_ON, VIEWS, view
from ringfaust.spark.lines import LINE

_LONG, _INT, _TEXT, _BYTES = T.LongType(), T.IntegerType(), T.StringType(), T.BinaryType()
_TIME, _DATE, _TRUTH = T.TimestampType(), T.DateType(), T.BooleanType()

HEADERS = T.ArrayType(T.StructType([T.StructField("key", _TEXT), T.StructField("value", _BYTES)]))
"""As Spark's Kafka source returns them."""


@dataclass(frozen=True, slots=True)
class LakeTable:
    """One table: its path under the lake's root, and its columns."""

    name: str
    path: str
    schema: T.StructType
    partitioned_by: tuple[str, ...] = ()
    skip_by: tuple[str, ...] = ()
    """Columns whose bounds are stored for each file, so that readers can skip files."""
    cluster_by: tuple[str, ...] = ()
    """Columns by which `ringfaust spark maintain` sorts the rows of a day into files."""

    @property
    def day(self) -> str | None:
        """The column with the day by which the table is partitioned; None: there is none."""
        return self.partitioned_by[-1] if self.partitioned_by else None


def columns(*groups: tuple[T.DataType, str]) -> T.StructType:
    """Columns from pairs of a type and names separated by spaces; all may be null."""
    pairs = ((name, kind) for kind, names in groups for name in names.split())
    return T.StructType([T.StructField(*pair) for pair in pairs])


_RECORD = ((_TEXT, "topic"), (_INT, "partition"), (_LONG, "offset"), (_TIME, "timestamp"))
_BATCH_AND_DATE = ((_LONG, "batch"), (_DATE, "date"))
_MESSAGE = ((_INT, "partition"), (_TEXT, "queue"), (_LONG, "life sequence"), (_TEXT, "id"))
"""What identifies a message, and its id. Sequences begin at 1 in each lifecycle of a queue."""

TIMES = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""A setting of sessions that write tables. In Spark's default format Arrow cannot read times before
1677 and after 2262, which are those of producers that take another unit."""
BRONZE = LakeTable(
    "bronze",
    "bronze/records",
    columns(
        *_RECORD, (_INT, "timestamp_type"), (_BYTES, "key value"), (HEADERS, "headers"),
        *_BATCH_AND_DATE,
    ),
    ("topic", "date"),
    ("partition", "offset", "timestamp", "batch"),
)  # fmt: skip
TRANSITIONS = LakeTable(
    "transitions",
    "silver/transitions",
    T.StructType(
        [
            *columns(
                (_INT, "partition"), (_LONG, "offset"), (_TIME, "timestamp"), (_INT, "line"),
                (_TEXT, "raw"),
            ),
            *LINE,
            *columns(*_BATCH_AND_DATE),
        ]
    ),
    ("date",),
    ("partition", "offset", "step", "time_ms", "queue", "sequence", "batch"),
    ("queue", "sequence"),
)  # fmt: skip
MOSTLY_DISTINCT = ("raw", "step", "sequence", "id", "source", "by")
"""Columns of mostly distinct values: Parquet would build a dictionary and then discard it."""
RECORDS = LakeTable(
    "records",
    "silver/records",
    columns(
        (_TEXT, "role"),
        *_RECORD,
        (_TEXT, "queue id"),
        (_LONG, "sequence"),
        (_TEXT, "source"),
        (_INT, "priority"),
        (_LONG, "enqueued_ms"),
        (_TEXT, "group consumer"),
        (_LONG, "delivery"),
        (_INT, "attempt handovers"),
        (_TRUTH, "redelivered"),
        (_LONG, "expires_at_ms"),
        (_TEXT, "reason cause"),
        (_INT, "ring_size ready"),
        (_LONG, "time_ms age_ms"),
        (_TEXT, "text position"),
        (T.MapType(_TEXT, _BYTES), "extra"),
        (_BYTES, "key value"),
        (HEADERS, "headers"),
        *_BATCH_AND_DATE,
    ),
    ("role", "date"),
    ("partition", "offset", "timestamp", "queue", "sequence", "delivery", "time_ms", "batch"),
    ("queue", "sequence"),
)
QUARANTINE = LakeTable(
    "quarantine",
    "silver/quarantine",
    columns(*_RECORD, (_INT, "line"), (_TEXT, "why raw"), *_BATCH_AND_DATE),
    ("date",),
    ("partition", "offset", "batch"),
)
MESSAGES = LakeTable(
    "messages",
    "gold/messages",
    columns(
        *_MESSAGE,
        (_TEXT, "source"),
        (_INT, "priority"),
        (_TEXT, "group"),
        (_LONG, "size_bytes added_step enqueued_ms due_ms expires_at_ms"),
        (_LONG, "first_dispatched_ms last_dispatched_ms last_delivery"),
        (_INT, "attempts handovers"),
        (T.ArrayType(_TEXT), "consumers"),
        (_TEXT, "state fate reason cause consumer text to"),
        (_LONG, "age_ms ended_ms ended_step last_offset"),
        (_INT, "last_line"),
        (_LONG, "batch"),
        (_DATE, "ended_date"),
    ),
    ("ended_date",),
    ("partition", "queue", "life", "sequence", "enqueued_ms", "ended_ms", "batch"),
    ("queue", "sequence"),
)
DELIVERIES = LakeTable(
    "deliveries",
    "gold/deliveries",
    columns(
        (_INT, "partition"),
        (_LONG, "delivery"),
        (_TEXT, "queue"),
        (_LONG, "life sequence"),
        (_TEXT, "id consumer"),
        (_INT, "attempt handovers"),
        (_LONG, "handed_ms handed_step"),
        (_TEXT, "how"),
        (_LONG, "settled_ms settled_step held_ms batch"),
        (_DATE, "settled_date"),
    ),
    ("settled_date",),
    ("partition", "delivery", "queue", "handed_ms", "settled_ms", "batch"),
    ("queue", "delivery"),
)
QUEUE_MINUTES = LakeTable(
    "queue_minutes",
    "gold/queue_minutes",
    columns(
        (_INT, "partition"),
        (_TEXT, "queue"),
        (_TIME, "minute"),
        (_LONG, " ".join(COUNTED)),
        (_LONG, "added_bytes evicted_age_ms_sum evicted_age_ms_min evicted_age_ms_max"),
        (_LONG, "ready delivering scheduled"),
        (_INT, "ring_size"),
        *_BATCH_AND_DATE,
    ),
    ("date",),
    ("partition", "queue", "minute"),
    ("queue", "minute"),
)
QUEUES = LakeTable(
    "queues",
    "gold/queues",
    columns(
        (_INT, "partition"),
        (_TEXT, "queue"),
        (_LONG, "ready delivering scheduled"),
        (_TIME, "last_minute"),
        (_LONG, "batch"),
    ),
)
SCHEDULED = LakeTable(
    "scheduled",
    "gold/scheduled",
    columns((_INT, "partition"), (_TEXT, "queue"), (_LONG, "sequence")),
)
DELETIONS = LakeTable(
    "deletions",
    "gold/deletions",
    columns((_INT, "partition"), (_TEXT, "queue"), (_LONG, "step time_ms"), (_TEXT, "counts")),
)
QUEUE_COUNTS = LakeTable(
    "queue_counts",
    "gold/queue_counts",
    columns(
        (_INT, "partition"),
        (_TEXT, "queue"),
        (_LONG, "life"),
        (_LONG, " ".join(COUNTS)),
        (_LONG, "last_sequence oldest_sequence step time_ms"),
        *_BATCH_AND_DATE,
    ),
    ("date",),
    ("partition", "queue", "batch"),
)
TABLES = {
    table.name: table
    for table in (
        BRONZE, TRANSITIONS, RECORDS, QUARANTINE, MESSAGES, DELIVERIES, QUEUE_MINUTES, QUEUES,
        SCHEDULED, DELETIONS, QUEUE_COUNTS,
    )
}  # fmt: skip
"""All tables by name."""


def path(root: str, table: str) -> str:
    """The folder or URI of a table."""
    return f"{root.rstrip('/')}/{TABLES[table].path}"


def sql_name(root: str, table: str) -> str:
    """How SQL refers to a table."""
    return f"delta.`{path(root, table).replace('`', '``')}`"


def last_closing(spark: SparkSession, root: str, table: str) -> int:
    """The last batch that a closing has brought into a table; -1: none."""
    rows = spark.read.format("delta").load(path(root, table)).agg(F.max("batch"))
    batch = rows.collect()[0][0]
    return -1 if batch is None else int(batch)


def read_if_any(
    spark: SparkSession, root: str, name: str, refusal: type[RingfaustError]
) -> DataFrame:
    """Like `read`, for a folder that someone has named.

    Raises:
        RingfaustError: a `refusal`, which says that there is no lake.
    """
    try:
        return read(spark, root, name)
    except AnalysisException as error:
        raise refusal(
            f"there is no lake at {root}: use the folder that `ringfaust spark lake` writes "
            f"({error.getCondition()})"
        ) from error


def read(spark: SparkSession, root: str, name: str) -> DataFrame:
    """Read a table or view of the lake, such as `transitions` or `messages_now`, as a batch.

    `root` is the lake's folder or URI.

    Raises:
        KeyError: there is no table with that name.
        AnalysisException: there is no lake at `root`.
    """
    if name in VIEWS:
        since = {table: f"batch > {last_closing(spark, root, table)}" for table in ENDED_ON}
        return spark.sql(view(name, partial(sql_name, root), since))
    return spark.read.format("delta").load(path(root, name))
