"""What the lake's tables and columns mean, as catalogs show it. docs/lake.md says more."""

from __future__ import annotations

from pyspark.sql.types import StructType

from ringfaust.core.model import HELD_STATES
from ringfaust.protocol.lifecycle import EXIT_EVENTS
from ringfaust.spark.lake.tables import LakeTable
from ringfaust.spark.lake.views import COUNTED
from ringfaust.spark.lines import FIELDS

TABLES = {
    "bronze": "A row for each record, as it was read.",
    "transitions": "A row for each line of the events topic.",
    "records": "A row for each dispatched, evicted or dead record.",
    "quarantine": "A row for each line or record that cannot be read.",
    "messages": "A row for each message of a queue, as of the last closing.",
    "deliveries": "A row for each delivery, as of the last closing.",
    "queue_minutes": "A row for each queue, minute and batch with lines of it.",
    "queues": "A row for each queue, as it is now.",
    "scheduled": "A row for each message that waits for its time now.",
    "deletions": "A row for each deletion of a queue.",
    "queue_counts": "A row for each queue and closing, with its counts until then.",
}
_COMMON = {name: field.meaning for name, field in FIELDS.items()} | {
    "topic": "the topic of the record",
    "partition": "the partition of the application",
    "offset": "the offset of the record",
    "timestamp": "the timestamp of the record",
    "timestamp_type": "0: set by the producer, 1: by the broker",
    "key": "the record's key",
    "value": "the record's value",
    "headers": "the producer's headers",
    "batch": "the batch that wrote the row",
    "date": "the day, in UTC",
    "line": "the number of the line in its record, from 0",
    "raw": "the text of the line",
    "role": "dispatched, evicted or dead",
    "extra": "ringfaust's headers that this version does not know",
    "why": "what is wrong",
    "redelivered": "whether it was delivered before",
    "position": "where its record was read",
    "life": "the step in which the queue was last deleted before, or 0",
    "ready": "the number of ready messages",
    "delivering": "the number of messages that are being delivered",
    "scheduled": "the number of messages that wait for their time",
    "minute": "the beginning of the minute",
    "last_minute": "the last minute in which something happened",
    "added_step": "the step in which it entered the queue",
    "first_dispatched_ms": "when it was first dispatched, in ms since 1970",
    "last_dispatched_ms": "when it was last dispatched, in ms since 1970",
    "last_delivery": "the number of its last delivery",
    "attempts": "the highest number of an attempt",
    "consumers": "all to which it was dispatched",
    "state": "ready, delivering, scheduled or ended",
    "fate": "how it ended; null: it has not",
    "ended_ms": "when it ended, in ms since 1970",
    "ended_step": "the step in which it ended",
    "ended_date": "the day on which it ended, in UTC; null: it has not",
    "last_offset": "the offset of the record with the last line about it",
    "last_line": "the number of the last line about it in that record",
    "handed_ms": "when it was dispatched, in ms since 1970",
    "handed_step": "the step in which it was dispatched",
    "how": "how it ended; null: it has not",
    "settled_ms": "when it ended, in ms since 1970",
    "settled_step": "the step in which it ended",
    "settled_date": "the day on which it ended, in UTC; null: it has not",
    "held_ms": "from dispatch to end, in ms",
    "added_bytes": "the sizes of the messages that entered, in bytes",
    "evicted_age_ms_sum": "the sum of the ages of evicted messages, in ms",
    "evicted_age_ms_min": "the least age of an evicted message, in ms",
    "evicted_age_ms_max": "the greatest age of an evicted message, in ms",
}
_COUNTS = {name: f"the number of events `{name}`" for name in COUNTED} | {
    "added": "the number of messages that entered, ready or scheduled",
    "redelivered": "the number of messages that were dispatched again",
}
_RECORD = {"partition": "the partition of the record in its topic"}
_OF = {
    "bronze": {**_RECORD, "headers": "the record's headers, in their order"},
    "records": _RECORD,
    "quarantine": _RECORD,
    "queue_minutes": _COUNTS,
    "queue_counts": {
        **{name: f"the number of messages that are {name}" for name in HELD_STATES},
        **{name: f"the number of events `{name}` since its creation" for name in EXIT_EVENTS},
        "added": "the number of messages that have entered since its creation",
        "refused": "the number of messages that it has refused since its creation",
        "last_sequence": "the sequence of its last message",
        "oldest_sequence": "the sequence of the oldest message that it holds; null: it holds none",
        "step": "the last step of its partition that the closing contains",
        "time_ms": "the time of the last line that the closing contains, in ms since 1970",
        "batch": "the batch of the closing",
        "date": "the last day that it closes",
    },
}
"""By table, columns that mean something else there."""


def described(table: LakeTable) -> StructType:
    """The table's columns with their comments. A column without one is a KeyError."""
    fields = StructType.fromJson(table.schema.jsonValue())
    for field in fields:
        meaning = _OF.get(table.name, {}).get(field.name) or _COMMON[field.name]
        field.metadata = {**field.metadata, "comment": meaning}
    return fields
