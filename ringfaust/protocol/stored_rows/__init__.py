"""Stored rows: keys that sort in reading order, and values with a version byte.

RocksDB and the changelog hold the same bytes, except that the changelog omits the bodies of
non-persistent messages (R82). `keys` writes the keys, `values` the values by kind of row,
`messages`, `deliveries` and `queue_rows` the layouts of these, `row_encoder` and `writes` the
changes of a batch, and `version` the byte that begins every value.
"""

from ringfaust.protocol.stored_rows.deliveries import without_body
from ringfaust.protocol.stored_rows.keys import after_prefix, read_tail, table_prefix, write_key
from ringfaust.protocol.stored_rows.messages import (
    read_message,
    read_record,
    write_message,
    write_record,
)
from ringfaust.protocol.stored_rows.row_encoder import encode_writes
from ringfaust.protocol.stored_rows.values import (
    FEEDS_KEY,
    INPUTS_KEY,
    OWNER_KEY,
    POSITIONS_KEY,
    Feed,
    Feeds,
    InputState,
    JobOwner,
    read_feeds,
    read_inputs,
    read_owner,
    read_positions,
    read_value,
    write_feeds,
    write_inputs,
    write_owner,
    write_positions,
    write_value,
)
from ringfaust.protocol.stored_rows.version import body_start, read_json, versioned, write_json
from ringfaust.protocol.stored_rows.writes import without_bodies

__all__ = [
    "after_prefix",
    "FEEDS_KEY",
    "Feed",
    "Feeds",
    "INPUTS_KEY",
    "POSITIONS_KEY",
    "InputState",
    "JobOwner",
    "OWNER_KEY",
    "body_start",
    "encode_writes",
    "read_feeds",
    "read_inputs",
    "read_json",
    "read_message",
    "read_owner",
    "read_positions",
    "read_record",
    "read_tail",
    "read_value",
    "table_prefix",
    "versioned",
    "without_bodies",
    "without_body",
    "write_feeds",
    "write_inputs",
    "write_json",
    "write_key",
    "write_message",
    "write_owner",
    "write_positions",
    "write_record",
    "write_value",
]
