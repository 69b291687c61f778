"""The commands of the engine. A command names its queue; its time is an argument of the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ringfaust.core.model import AckMode


class Send(NamedTuple):
    """A message for a queue, or for each queue of an address (R2, R30, R33, R50, R70)."""

    queue: str
    """Name of the queue or address that the message is sent to."""
    id: str
    sent_ms: int
    """When the producer's record was stored; TTL and delay count from this time."""
    priority: int = 4
    due_ms: int = 0
    """When to deliver the message. At once if 0 or not in the future (R33)."""
    expires_at_ms: int = 0
    """0: never."""
    group: str = ""
    size_bytes: int = 0
    payload: Any = None
    persistent: bool = True
    """False: a crash may lose it (R82)."""
    xid: str = ""
    """The distributed transaction that decides on it (R81); empty: none."""
    redrives: int = 0
    """How often the message was redriven (R43)."""
    redrive_of: str = ""
    """`queue/sequence` of the message that is sent again; empty: it is sent for the first time."""
    owner: str = ""
    """Who began the distributed transaction (R81)."""


class Attach(NamedTuple):
    """Attach a consumer to a queue (R10, R11)."""

    queue: str
    consumer: str
    credit: int
    priority: int = 0
    ack_mode: AckMode = AckMode.INDIVIDUAL
    session: str = ""
    selector: str = ""
    """Which messages the consumer accepts (R15); empty: all."""
    credit_bytes: int = 0
    """No more messages while it holds this many bytes; 0: only `credit` counts (R10)."""


class Subscribe(NamedTuple):
    """Attach a consumer to an address; creates the queue of the subscription if needed (R70)."""

    address: str
    consumer: str
    credit: int
    priority: int = 0
    ack_mode: AckMode = AckMode.INDIVIDUAL
    session: str = ""
    selector: str = ""
    """Which messages the subscription receives. Fixed for a durable subscription."""
    credit_bytes: int = 0
    subscription: str = ""
    """Name of a durable subscription; empty: the subscription ends with its consumer."""
    client: str = ""
    """Id of the client that owns the durable subscription."""
    shared: bool = False
    """Allow more than one consumer at a time."""


class Credit(NamedTuple):
    """Grant a consumer more credit (R10)."""

    queue: str
    consumer: str
    add: int


class Heartbeat(NamedTuple):
    """Show that a consumer is alive (R13). Every other command that it sends shows it, too."""

    queue: str
    consumer: str


class Ack(NamedTuple):
    """Accept a delivery (R16). `delivery` 0: the oldest unsettled one of that message id."""

    queue: str
    consumer: str
    message: str
    delivery: int = 0
    xid: str = ""
    """The distributed transaction that decides on it (R81); empty: none."""
    owner: str = ""
    """Who began it."""


class AckMany(NamedTuple):
    """Accept several deliveries in one step; each that has ended is refused alone (R16, R103)."""

    queue: str
    consumer: str
    deliveries: tuple[tuple[int, str], ...]
    """Pairs of the delivery's number and the message id."""


class Release(NamedTuple):
    """Return a delivery (R23). `delay_ms` None: the redelivery delay of the queue (R40)."""

    queue: str
    consumer: str
    message: str
    delivery: int = 0
    delay_ms: int | None = None


class Reject(NamedTuple):
    """Send a delivery to the dead topic, with the consumer's reason (R41)."""

    queue: str
    consumer: str
    message: str
    delivery: int = 0
    text: str = ""


class Detach(NamedTuple):
    """Detach a consumer cleanly; its unsettled deliveries return (R20)."""

    queue: str
    consumer: str


class Recover(NamedTuple):
    """Return all unsettled deliveries of a consumer, which stays attached (R20)."""

    queue: str
    consumer: str


class Rollback(NamedTuple):
    """Return everything that the consumers of a session hold (R80)."""

    session: str
    acked: tuple[Ack, ...] = ()
    """What the session acked, in order. Matters only for `compat: artemis` (C2, C9)."""


class Begin(NamedTuple):
    """Begin a distributed transaction (R81)."""

    xid: str
    owner: str = ""
    """What acks and sends show to take part; empty: no record of a producer can."""
    timeout_ms: int = 300_000
    """When it is rolled back unless it is prepared."""


class Prepare(NamedTuple):
    """Prepare a distributed transaction: from now on it survives restarts (R81)."""

    xid: str


class Commit(NamedTuple):
    """Commit a prepared transaction: its operations take effect (R81)."""

    xid: str


class RollbackXid(NamedTuple):
    """Roll back a distributed transaction: none of its operations takes effect (R81)."""

    xid: str


class Start(NamedTuple):
    """The host has opened the partition; roll back what is not prepared (R81)."""


class CreateQueue(NamedTuple):
    """Create a queue with its own settings; a queue `address::name` joins that address (R71)."""

    queue: str
    settings: Mapping[str, object]


class Configure(NamedTuple):
    """Change settings of a queue (R90)."""

    queue: str
    settings: Mapping[str, object]


class ConfigureAddress(NamedTuple):
    """Change settings of an address (R71, R90)."""

    address: str
    settings: Mapping[str, object]


class DeleteQueue(NamedTuple):
    """Delete a queue: ready and delivering messages are evicted, scheduled ones removed (R90)."""

    queue: str


class Pause(NamedTuple):
    """Pause pulling or dispatch (R90). Settles and due times continue."""

    queue: str
    what: str


class Resume(NamedTuple):
    """Resume pulling or dispatch (R90)."""

    queue: str
    what: str


class Purge(NamedTuple):
    """Evict all ready messages, lowest position first (R90)."""

    queue: str


class Remove(NamedTuple):
    """Remove one ready or scheduled message (R90)."""

    queue: str
    message: str


class Move(NamedTuple):
    """Move one ready or scheduled message to another queue of the same partition (R90)."""

    queue: str
    message: str
    to: str


class CancelScheduled(NamedTuple):
    """Cancel one scheduled message (R34)."""

    queue: str
    message: str


class DeliverNow(NamedTuple):
    """Make one scheduled message due now (R34)."""

    queue: str
    message: str


class Apply(NamedTuple):
    """Use another configuration in the partition: the whole of `queues.yaml` (R128)."""

    revision: int
    """Its number, above that of the present one."""
    configuration: Mapping[str, Any]
    """`routes`, `queues`, `addresses` and `settings`, as in queues.yaml."""
    who: str = ""
    """Who applies it."""
    text: str = ""
    """What it changes, or why."""


class RaiseLevel(NamedTuple):
    """Let the partition use a feature level, unless it uses that or a higher one (R129)."""

    level: int
    who: str = ""
    """Who finishes the upgrade."""


class Sweep(NamedTuple):
    """Let time act: expiry, due messages, leases and consumer timeouts (R12, R13, R32, R50).

    A consumer's silence counts only from `heard_since_ms` to `heard_ms` (R110).
    """

    heard_ms: int | None = None
    """Every command that was in the log by then has been executed; None: by now."""
    heard_since_ms: int = 0
    """Since when commands could reach the log without a pause."""


Command = (
    Send | Attach | Subscribe | Credit | Heartbeat | Ack | AckMany | Release | Reject | Detach
    | Recover | Rollback | Begin | Prepare | Commit | RollbackXid | Start | CreateQueue | Configure
    | ConfigureAddress | DeleteQueue | Pause | Resume | Purge | Remove | Move | CancelScheduled
    | DeliverNow | Apply | RaiseLevel | Sweep
)  # fmt: skip
