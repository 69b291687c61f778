"""Values of stored rows, by kind: most are JSON; messages, deliveries and queues have layouts.

All that decodes a row raises `UnknownRowVersion` if a newer ringfaust wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, NamedTuple

from ringfaust.core.address import AddressRow
from ringfaust.core.catalog import Configuration
from ringfaust.core.levels import check_level
from ringfaust.core.model import (
    IN_TURN,
    AckMode,
    Consumer,
    Group,
    Message,
    Operation,
    Stage,
    Unfinished,
    XidRow,
)
from ringfaust.core.sent_ids import SentId, SentPage
from ringfaust.core.settlement_history import Past
from ringfaust.core.state import Clock
from ringfaust.core.table import Kind
from ringfaust.protocol.stored_rows.deliveries import read_delivery, write_delivery
from ringfaust.protocol.stored_rows.messages import read_message, write_message
from ringfaust.protocol.stored_rows.queue_rows import read_queue, write_queue
from ringfaust.protocol.stored_rows.version import (
    VERSION_BYTE,
    body_start,
    read_json,
    to_json,
    versioned,
    write_json,
)

# --- operations of distributed transactions -------------------------------------------------------

_OPERATION_BODY = Struct(">QH")
_OPERATION = Struct(">BQH")
"""With the version byte in front."""


_WITH_POSITION = VERSION_BYTE + 1
"""First byte of an ack's row that ends with the position of the message: version 2."""
_POSITION_BYTES = 16


def _write_operation(operation: Operation) -> bytes:
    queue, message, position = operation.queue.encode(), operation.message, operation.position
    version = _WITH_POSITION if position else VERSION_BYTE
    head = _OPERATION.pack(version, operation.number, len(queue)) + queue
    if message is not None:
        return head + write_message(message)
    return head + position.to_bytes(_POSITION_BYTES, "big") if position else head


def _read_operation(raw: bytes) -> Operation:
    is_positioned = raw[0] == _WITH_POSITION
    start = 1 if is_positioned else body_start(raw, "OPERATION", newest=2)
    number, length = _OPERATION_BODY.unpack_from(raw, start)
    start += _OPERATION_BODY.size
    end = start + length
    queue, rest = raw[start:end].decode(), raw[end:]
    if is_positioned:
        return Operation(queue, None, number, int.from_bytes(rest, "big"))
    return Operation(queue, read_message(rest) if rest else None, number)


# --- small rows, in JSON ------------------------------------------------------------------------

POSITIONS_KEY = b"\0positions"
"""Key of the row that maps each input topic to the next offset to read."""


def write_positions(positions: Mapping[str, int]) -> bytes:
    """Encode the positions, by topic."""
    return write_json(positions)


def read_positions(raw: bytes | None) -> dict[str, int]:
    """Decode the positions; a new store has none."""
    return dict(read_json(raw, "positions")) if raw else {}


INPUTS_KEY = b"\0inputs"
"""Key of the row that holds what is known about each input topic besides the position."""


class InputState(NamedTuple):
    """What is known about an input topic."""

    topic_id: str = ""
    """The id of the topic that the position belongs to (R111); empty if it is not known."""
    gaps: int = 0
    """How many gaps the partition has had (R112)."""


def write_inputs(inputs: Mapping[str, InputState]) -> bytes:
    """Encode what is known about the inputs, by topic."""
    return write_json(dict(sorted(inputs.items())))


def read_inputs(raw: bytes | None) -> dict[str, InputState]:
    """Decode what is known about the inputs; old stores have nothing."""
    found = read_json(raw, "inputs") if raw else {}
    return {topic: InputState(*fields) for topic, fields in found.items()}


FEEDS_KEY = b"\0feeds"
"""Key of the row that holds what fed the queues of the partition (R113)."""


class Feed(NamedTuple):
    """A route: the records of a topic go to a queue."""

    topic: str
    queue: str
    """The template, with `{topic}` filled in."""
    is_repartitioned: bool


class Feeds(NamedTuple):
    """What feeds the queues of an application."""

    partitions: int
    routes: tuple[Feed, ...]
    """Sorted."""


def write_feeds(feeds: Feeds) -> bytes:
    """Encode what feeds the queues."""
    return write_json(feeds)


def read_feeds(raw: bytes | None) -> Feeds | None:
    """Decode what fed the queues; None if it was never stored."""
    if raw is None:
        return None
    partitions, routes = read_json(raw, "feeds")
    return Feeds(partitions, tuple(Feed(*route) for route in routes))


OWNER_KEY = b"\0owner"
"""Key of the row that says that a ring job has the partition's rings (ADR 53).

It is in the changelog from the moment at which the job takes the rings over until a worker gets
them back, and meanwhile it is the last row there.
"""


class JobOwner(NamedTuple):
    """The ring job that has the rings."""

    checkpoint: str
    """Its folder or URI."""
    query: str
    """Tells the job of this checkpoint from that of another one in the same folder."""
    since_ms: int
    from_worker: bool
    """Whether it begins with what the changelog holds."""


def write_owner(owner: JobOwner) -> bytes:
    """Encode the owner."""
    return write_json(list(owner))


def read_owner(raw: bytes | None) -> JobOwner | None:
    """Decode the owner; None: no job has the rings."""
    return JobOwner(*read_json(raw, "owner")) if raw else None


def _write_consumer(consumer: Consumer) -> bytes:
    return write_json(
        [
            consumer.name, consumer.order, consumer.credit, consumer.priority, consumer.ack_mode,
            consumer.session, consumer.active, consumer.seen_ms, consumer.selector,
            consumer.credit_bytes,
        ]
    )  # fmt: skip


def _as_consumer(row: Any) -> Consumer:
    name, order, credit, priority, ack_mode, *rest = row
    return Consumer(name, order, credit, priority, AckMode(ack_mode), *rest)


def _as_address(fields: Any) -> AddressRow:
    row = AddressRow(*fields)
    return row._replace(members=tuple(row.members))


def _as_group(row: Any) -> Group:
    """0.1.0 stored the owner alone, and did not count messages."""
    return Group(row, 0) if isinstance(row, int) else Group(*row)


# --- the clock ------------------------------------------------------------------------------------

_WITH_LEVEL = bytes((VERSION_BYTE + 1,))
"""First byte of the row of a partition that uses a feature level above 1: version 2."""


def _write_clock(clock: Clock) -> bytes:
    """Level 1 has no name in the row: it is what versions without levels read (R129)."""
    if clock.level == 1:
        return write_json(clock[:-1])
    return _WITH_LEVEL + write_json(clock)[1:]


def _read_clock(raw: bytes) -> Clock:
    if raw.startswith(_WITH_LEVEL):
        clock = Clock(*read_json(versioned(raw[1:]), Kind.CLOCK.name))
    else:
        now_ms, step, deliveries = read_json(raw, Kind.CLOCK.name, newest=2)
        clock = Clock(now_ms, step, deliveries, 1)
    check_level("this ringfaust", "the state of a partition", clock.level)
    return clock


# --- unfinished commands --------------------------------------------------------------------------

_WITH_MESSAGE = VERSION_BYTE + 1
"""First byte of the row of a command that has a message to send: the message follows the JSON."""
_END_OF_JSON = b"\0"
_to_utf8 = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""So that a whole command takes no more bytes than in its record (R120): `\\u` is longer than a
letter. As in the record, a text may have lone surrogates."""


def _read_unfinished(raw: bytes) -> Unfinished:
    message = None
    if raw[0] == _WITH_MESSAGE:
        head, _, tail = raw[1:].partition(_END_OF_JSON)
        raw, message = versioned(head), read_message(tail)
    fields = read_json(raw, Kind.UNFINISHED.name, newest=2)
    stages, queue, before_ms, is_split, context, *rest = fields
    parts = tuple(Stage(kind, name, _as_args(args, message)) for kind, name, args in stages)
    kept = tuple(rest[0]) if rest else ()
    checked = rest[1] if len(rest) > 1 else 0
    return Unfinished(parts, queue, before_ms, is_split, tuple(context), kept, checked)


def _as_args(args: Any, message: Message | None) -> tuple[Any, ...]:
    return (message, *args[1:]) if args and args[0] is None else tuple(args)


def _write_unfinished(unfinished: Unfinished) -> bytes:
    """A row that has nothing of what was added later is as it was before that."""
    row: Any = unfinished
    if not unfinished.checked:
        row = unfinished[:-1] if unfinished.refusal else unfinished[:-2]
    stages = unfinished.stages
    # Only one stage can have a message: the others wait until it is done.
    message = next((s.args[0] for s in stages if s.args and isinstance(s.args[0], Message)), None)
    if message is not None:
        plain = [s._replace(args=(None, *s.args[1:])) if message in s.args else s for s in stages]
        row = (plain, *row[1:])
    is_command = any(each.kind == IN_TURN for each in stages)
    body = (_to_utf8 if is_command else to_json)(row).encode("utf-8", "surrogatepass")
    if message is None:
        return versioned(body)
    return bytes((_WITH_MESSAGE,)) + body + _END_OF_JSON + write_message(message)


# --- distributed transactions ---------------------------------------------------------------------

_WITH_DEADLINE = bytes((VERSION_BYTE + 1,))
"""First byte of the row of a transaction that has an owner or a timeout: version 2."""


def _write_xid(row: XidRow) -> bytes:
    if not row.owner and not row.timeout_ms:
        return write_json(row[:3])
    return _WITH_DEADLINE + write_json(row)[1:]


def _read_xid(raw: bytes) -> XidRow:
    if raw.startswith(_WITH_DEADLINE):
        raw = versioned(raw[1:])
    return XidRow(*read_json(raw, Kind.XID.name, newest=2))


# --- other rows ----------------------------------------------------------------------------------


def _as_page(entries: Any) -> tuple[tuple[str, bool], ...]:
    return tuple((message_id, evicted) for message_id, evicted in entries)


def _as_sent_page(fields: Any) -> SentPage:
    last_ms, ids = fields
    return SentPage(last_ms, tuple(ids))


def _json_reader(kind: Kind, build: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    name = kind.name  # an enum's name costs a call each time
    return lambda raw: build(read_json(raw, name))


def _write_mark(value: Any) -> bytes:
    """A row whose key says it all. Before there was a version byte its value was `1`."""
    return _MARK


def _mark_reader(kind: Kind) -> Callable[[bytes], bool]:
    name = kind.name

    def read(raw: bytes) -> bool:
        body_start(raw, name)
        return True

    return read


_MARK = bytes((VERSION_BYTE,))


def _write_name(name: str) -> bytes:
    return versioned(name.encode())


def _name_reader(kind: Kind) -> Callable[[bytes], str]:
    row = kind.name
    return lambda raw: raw[body_start(raw, row) :].decode()


_VALUES: dict[int, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    Kind.CLOCK: (_write_clock, _read_clock),
    Kind.QUEUE: (write_queue, read_queue),
    Kind.CONSUMER: (_write_consumer, _json_reader(Kind.CONSUMER, _as_consumer)),
    Kind.RING: (write_message, read_message),
    Kind.DELIVERY: (write_delivery, read_delivery),
    Kind.SCHEDULED: (write_message, read_message),
    Kind.EXPIRY: (write_json, _json_reader(Kind.EXPIRY, tuple)),
    Kind.WAKE: (_write_mark, _mark_reader(Kind.WAKE)),
    Kind.GROUP: (write_json, _json_reader(Kind.GROUP, _as_group)),
    Kind.SESSION: (_write_mark, _mark_reader(Kind.SESSION)),
    Kind.ENDED: (write_json, _json_reader(Kind.ENDED, _as_page)),
    Kind.PAST: (write_json, _json_reader(Kind.PAST, lambda row: Past(*row))),
    Kind.DEPARTED: (_write_name, _name_reader(Kind.DEPARTED)),
    Kind.ADDRESS: (write_json, _json_reader(Kind.ADDRESS, _as_address)),
    Kind.RETAINED: (write_message, read_message),
    Kind.XID: (_write_xid, _read_xid),
    Kind.OPERATION: (_write_operation, _read_operation),
    Kind.IDLE_GROUP: (_write_name, _name_reader(Kind.IDLE_GROUP)),
    Kind.UNFINISHED: (_write_unfinished, _read_unfinished),
    Kind.SENT_ID: (write_json, _json_reader(Kind.SENT_ID, lambda row: SentId(*row))),
    Kind.SENT_PAGE: (write_json, _json_reader(Kind.SENT_PAGE, _as_sent_page)),
    Kind.CONFIGURATION: (
        write_json,
        _json_reader(Kind.CONFIGURATION, lambda row: Configuration(*row)),
    ),
}


def write_value(kind: int, value: Any) -> bytes:
    """Encode a row's value."""
    return _VALUES[kind][0](value)


def value_writer(kind: int) -> Callable[[Any], bytes]:
    """The function that encodes the values of a kind."""
    return _VALUES[kind][0]


def read_value(kind: int, raw: bytes) -> Any:
    """Decode a row's value, of this version or from before there were versions."""
    return _VALUES[kind][1](raw)
