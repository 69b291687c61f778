"""The entities: messages, deliveries, consumers, counts, and the order of positions.

What is created for each message is a `NamedTuple`: immutable, and created in a sixth of the time of
a frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, get_args

from ringfaust.core import limits
from ringfaust.core.selector import Selector, compile_selector

WINDOW: Final = "@window"
"""The name of the consumer that represents a managed window (R12)."""

PLAIN: Final = 1 << 104
"""Positions of plain messages start here, after those of all messages that came due (§1)."""


def plain_position(sequence: int) -> int:
    """The position of a plain message: its sequence number."""
    return PLAIN | sequence


def due_position(due_ms: int, sequence: int) -> int:
    """The position of a message that came due: before all plain ones, by (due time, sequence)."""
    return due_ms << limits.SEQUENCE_BITS | sequence


def timed_key(at_ms: int, sequence: int) -> int:
    """The key of a row in a table ordered by time: (time, sequence)."""
    return at_ms << limits.SEQUENCE_BITS | sequence


def time_of(key: int) -> int:
    """The time in a `timed_key`, in ms."""
    return key >> limits.SEQUENCE_BITS


class Heard(NamedTuple):
    """The time over which every command that clients sent has been executed (R110)."""

    since_ms: int
    until_ms: int

    def covers(self, at_ms: int, wait_ms: int) -> bool:
        """Tell whether `wait_ms` of it have passed since `at_ms`."""
        return max(at_ms, self.since_ms) + wait_ms <= self.until_ms


class AckMode(StrEnum):
    """How a consumer settles (R16). The engine treats only `client` and `none` differently."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "individual"
    DUPS_OK = "dups_ok"
    NONE = "none"


class Refusal(StrEnum):
    """Why a command was refused (R103)."""

    UNKNOWN_DELIVERY = "unknown_delivery"
    STALE_DELIVERY = "stale_delivery"
    EVICTED = "evicted"
    UNKNOWN_QUEUE = "unknown_queue"
    CONSUMER_LIMIT = "consumer_limit"
    LIMIT = "limit"
    QUEUE_FULL = "queue_full"
    TOO_LARGE = "too_large"
    DUPLICATE = "duplicate"
    BAD_SELECTOR = "bad_selector"
    BAD_COMMAND = "bad_command"


class EvictReason(StrEnum):
    """Why a message was evicted (R6)."""

    OVERFLOW = "overflow"
    RETURN_OVERFLOW = "return_overflow"
    SCHEDULED_OVERFLOW = "scheduled_overflow"
    LIMIT = "limit"
    SHRINK = "shrink"
    PURGE = "purge"


class DeadReason(StrEnum):
    """Why a message went to the dead topic (R42)."""

    EXPIRED = "expired"
    UNDELIVERABLE = "undeliverable"
    REJECTED = "rejected"
    LIMIT = "limit"
    TOO_LARGE = "too_large"


class Message(NamedTuple):
    """One message in one queue. The core never looks into `payload`."""

    id: str
    sequence: int
    position: int
    """Its place among the ready messages of its priority; 0 until it is first ready."""
    priority: int
    enqueued_ms: int
    """Time of the send. TTL, delay and age count from it."""
    expires_at_ms: int
    """0: never."""
    due_ms: int
    """When it is or was due; 0 for a plain send."""
    group: str
    """Empty: none."""
    attempts: int
    """Deliveries that count against `max_attempts` (R40)."""
    handovers: int
    """All its deliveries (R24)."""
    holders: tuple[str, ...]
    """Consumers that have held it, each once, the latest last (R42, R103)."""
    size_bytes: int
    payload: Any
    """The host's, or None where nobody reads it. Selectors call its method `properties()` (R15), a
    dedup window its method `is_named(id)` (R119). The number of its `headers` counts (R121)."""
    persistent: bool = True
    is_bodyless: bool = False
    """A crash has taken its body; it was not persistent (R82)."""


_MANY_HEADERS_BYTES = 1_000
"""A smaller message cannot have headers that matter."""


def cost_bytes(message: Message) -> int:
    """What a message counts when it is changed or looked at (R121): bytes, headers and names."""
    size_bytes, payload = message.size_bytes, message.payload
    size_bytes += limits.NAME_COST_BYTES * (len(message.id) + len(message.group))
    for name in message.holders:
        size_bytes += limits.HOLDER_COST_BYTES * len(name)
    if size_bytes <= _MANY_HEADERS_BYTES or payload is None:
        return size_bytes
    return size_bytes + limits.HEADER_COST_BYTES * len(payload.headers)


class Delivery(NamedTuple):
    """One message handed to one consumer, not settled yet."""

    number: int
    """Counts up over the whole partition, which orders the deliveries of several queues."""
    consumer: str
    message: Message
    handed_ms: int
    xid: str = ""
    """The undecided distributed transaction that has settled it (R81); empty: none."""
    is_orphan: bool = False
    """Its consumer has left; it waits for the decision of the transaction (R81)."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its message."""
        return self.message.size_bytes


class Stage(NamedTuple):
    """A part of a command that is still to be done (R114)."""

    kind: str
    """Which part: the engine has a function for each."""
    queue: str
    """Empty: it concerns the partition."""
    args: tuple[Any, ...] = ()
    """What else the part needs, such as where to resume. Of a stage that may wait for the next
    transaction these are plain JSON values; the first may be the message that is being sent."""


IN_TURN = "in turn"
"""The kind of the stage that is a whole command, to be checked when what the first use of its queue
has left is done (R90, R114). `args`: the name of its type, and its fields."""


class Unfinished(NamedTuple):
    """A command that did not fit into one transaction (R114)."""

    stages: tuple[Stage, ...]
    """What is left, in order."""
    queue: str
    """The queue that the command names; a refusal names it, too."""
    before_ms: int
    """The time to go back to if the command is refused in the end: the one before it, or that of
    what was kept meanwhile."""
    is_split: bool
    """Something was kept under the number of its step, which is not given back then."""
    context: tuple[str, ...] = ()
    """What the host needs to know when the command is finished."""
    refusal: tuple[str, ...] = ()
    """Queue, reason, id and text, if the command was refused: only what came before it is left."""
    checked: int = 0
    """Up to which delivery of a returning set all are known to return (C2)."""


class Looked(NamedTuple):
    """How far the look for lost bodies has come (R82)."""

    queue: str
    """The last queue that it has looked at, by name; empty: none yet."""
    place: tuple[int, int | None] | None = None
    """The last message of that queue; None: it is done with the queue."""


class Group(NamedTuple):
    """A message group of one queue (R14, R116)."""

    owner: int
    """Attach order of its consumer; 0: none. The consumer may have left since."""
    messages: int
    """How many of its messages are in the queue."""
    idle: int = 0
    """Its number among the groups that are remembered without a message; 0: it is not."""


class XidRow(NamedTuple):
    """An undecided distributed transaction (R81)."""

    name: str
    prepared: bool
    operations: int
    """How many were made in it."""
    owner: str = ""
    """What acks and sends must show to take part; empty: no record of a producer can."""
    began_ms: int = 0
    timeout_ms: int = 0
    """How long it may stay open without being prepared; 0 in old rows: for ever."""

    @property
    def deadline_ms(self) -> int:
        """When it is rolled back; 0: never."""
        return 0 if self.prepared or not self.timeout_ms else self.began_ms + self.timeout_ms


class Operation(NamedTuple):
    """An operation of a distributed transaction: a send, or an ack if there is no message."""

    queue: str
    """The destination of the send, or the queue of the delivery."""
    message: Message | None
    number: int
    """Of an ack, the delivery's number; of a send, how often the message was redriven (R43)."""
    position: int = 0
    """Of an ack, that of the delivered message; 0: it is an older row, or a send."""


@dataclass(slots=True)
class Consumer:
    """An attached consumer (R10, R11)."""

    name: str
    order: int
    """Its place in the attach order of its queue. Never reused."""
    credit: int
    priority: int
    ack_mode: AckMode
    session: str
    """Empty: none."""
    active: bool
    """False for a backup."""
    seen_ms: int
    """Time of its last sign of life (R13)."""
    selector: str = ""
    """Empty: it takes every message (R15)."""
    credit_bytes: int = 0
    """0: only `credit` counts."""
    held: dict[str, dict[int, None]] = field(default_factory=dict)
    """Numbers of its deliveries by message id, oldest first. Not stored: the deliveries are. Each
    can be taken out at once, also if all messages have one id (R121)."""
    positions: dict[int, int] = field(default_factory=dict)
    """Positions of its deliveries by number, without those settled in undecided transactions: in
    this order they return (R21, R22). Not stored either."""
    in_flight: int = 0
    held_bytes: int = 0
    compiled: Selector | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self.compiled = compile_selector(self.selector) if self.selector else None

    def hold(self, delivery: Delivery) -> None:
        """Count a delivery among those it holds: when it is opened, or read from the store."""
        self.held.setdefault(delivery.message.id, {})[delivery.number] = None
        if not delivery.xid:
            self.positions[delivery.number] = delivery.message.position
        self.in_flight += 1
        self.held_bytes += delivery.message.size_bytes

    def let_go(self, delivery: Delivery) -> None:
        """Undo `hold`: the delivery has ended, or is an orphan."""
        numbers = self.held[delivery.message.id]
        del numbers[delivery.number]
        if not numbers:
            del self.held[delivery.message.id]
        self.positions.pop(delivery.number, None)
        self.in_flight -= 1
        self.held_bytes -= delivery.message.size_bytes

    def is_open(self) -> bool:
        """Tell whether it can be handed another message now."""
        return (
            self.active
            and self.in_flight < self.credit
            and (not self.credit_bytes or self.held_bytes < self.credit_bytes)
        )

    def takes(self, message: Message) -> bool:
        """Tell whether it can be handed this message now."""
        if self.compiled is None:
            return self.is_open()
        return self.is_open() and self.compiled.matches(message)


HeldState = Literal["ready", "delivering", "scheduled"]
HELD_STATES: tuple[HeldState, ...] = get_args(HeldState)
"""The states of a message that is in its queue."""


@dataclass(slots=True)
class Counts:
    """The counts of a queue (R100). They are durable (R101).

    The first three say what the queue holds, the others only grow.
    """

    ready: int = 0
    delivering: int = 0
    scheduled: int = 0
    added: int = 0
    acked: int = 0
    evicted: int = 0
    expired: int = 0
    dead: int = 0
    refused: int = 0
    removed: int = 0
    moved_out: int = 0
    lost: int = 0

    @property
    def messages(self) -> int:
        """How many messages the queue holds."""
        return self.ready + self.delivering + self.scheduled

    @property
    def gone(self) -> int:
        """How many messages have left the queue, for whatever reason."""
        return (
            self.acked + self.evicted + self.expired + self.dead
            + self.removed + self.moved_out + self.lost
        )  # fmt: skip

    @property
    def balanced(self) -> bool:
        """Whether each message that was added is there or has left for a known reason (R100)."""
        return self.added == self.messages + self.gone

    def stored(self) -> tuple[int, ...]:
        """All counts in the order of the fields, as a row has them."""
        return (
            self.ready, self.delivering, self.scheduled, self.added, self.acked, self.evicted,
            self.expired, self.dead, self.refused, self.removed, self.moved_out, self.lost,
        )  # fmt: skip

    def as_dict(self) -> dict[str, int]:
        """All counts by name, with `messages`."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"messages": self.messages}


COUNTS = tuple(each.name for each in fields(Counts))
"""The names of the counts, in order."""
TOTALS = tuple(name for name in COUNTS if name not in HELD_STATES)
"""Those that only grow."""
