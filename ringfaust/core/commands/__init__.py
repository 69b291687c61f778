"""What may come in. A command names its queue; time is not in it but comes with the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ringfaust.core.model import AckMode


class Send(NamedTuple):
    """A message for a queue, or for each queue of an address (R2, R30, R33, R50, R70)."""

    queue: str
    """Where it goes: the name of a queue, or of an address."""
    id: str
    sent_ms: int
    """When the producer's record was stored; ttl and delay were counted from it."""
    priority: int = 4
    due_ms: int = 0
    """When to deliver; 0 or not after now: at once (R33)."""
    expires_at_ms: int = 0
    """0: never."""
    group: str = ""
    size_bytes: int = 0
    payload: Any = None
    persistent: bool = True
    """False: a crash may lose it (R82)."""
    xid: str = ""
    """The distributed transaction that it waits for (R81)."""
    redrives: int = 0
    """How often it was sent again (R43)."""


class Attach(NamedTuple):
    """A consumer joins a queue (R10, R11)."""

    queue: str
    consumer: str
    credit: int
    priority: int = 0
    ack_mode: AckMode = AckMode.INDIVIDUAL
    session: str = ""
    selector: str = ""
    """What it wants to be handed (R15); empty: all."""
    credit_bytes: int = 0
    """It is handed nothing while it holds so many bytes; 0: only `credit` counts (R10)."""


class Subscribe(NamedTuple):
    """A consumer joins an address; its subscription's queue is made if it is not there (R70)."""

    address: str
    consumer: str
    credit: int
    priority: int = 0
    ack_mode: AckMode = AckMode.INDIVIDUAL
    session: str = ""
    selector: str = ""
    """What the subscription wants to be sent; that of a durable one cannot change."""
    credit_bytes: int = 0
    subscription: str = ""
    """Name of a durable subscription; empty: it ends with the consumer."""
    client: str = ""
    """Id of the client that the durable subscription belongs to."""
    shared: bool = False
    """More than one consumer at a time."""


class Credit(NamedTuple):
    """A consumer can take more (R10)."""

    queue: str
    consumer: str
    add: int


class Heartbeat(NamedTuple):
    """A consumer is alive (R13). Any other command of its own says so too."""

    queue: str
    consumer: str


class Ack(NamedTuple):
    """A delivery is done (R16). `delivery` 0: the oldest unsettled one of that message id."""

    queue: str
    consumer: str
    message: str
    delivery: int = 0
    xid: str = ""
    """The distributed transaction that it waits for (R81)."""


class Release(NamedTuple):
    """A delivery is given back (R23). `delay_ms` None: the queue's redelivery delay (R40)."""

    queue: str
    consumer: str
    message: str
    delivery: int = 0
    delay_ms: int | None = None


class Reject(NamedTuple):
    """A delivery is dead, with the consumer's reason (R41)."""

    queue: str
    consumer: str
    message: str
    delivery: int = 0
    text: str = ""


class Detach(NamedTuple):
    """A consumer closes cleanly; all it holds returns (R20)."""

    queue: str
    consumer: str


class Recover(NamedTuple):
    """A consumer stays and gives all it holds back (R20)."""

    queue: str
    consumer: str


class Rollback(NamedTuple):
    """A session gives back all that its consumers hold (R80)."""

    session: str
    acked: tuple[Ack, ...] = ()
    """What was acked in it, in order. It matters to `compat: artemis` (C2, C9)."""


class Begin(NamedTuple):
    """A distributed transaction begins (R81)."""

    xid: str


class Prepare(NamedTuple):
    """It promises to be able to commit, whatever happens until then (R81)."""

    xid: str


class Commit(NamedTuple):
    """All that was done in it takes effect (R81)."""

    xid: str


class RollbackXid(NamedTuple):
    """Nothing that was done in it takes effect (R81)."""

    xid: str


class Start(NamedTuple):
    """A host has opened the partition: what was not prepared is rolled back (R81)."""


class CreateQueue(NamedTuple):
    """A queue is made, with settings of its own; `address::name` joins that address (R71)."""

    queue: str
    settings: Mapping[str, object]


class Configure(NamedTuple):
    """Settings of a queue change from here on (R90)."""

    queue: str
    settings: Mapping[str, object]


class ConfigureAddress(NamedTuple):
    """Settings of an address change from here on (R71, R90)."""

    address: str
    settings: Mapping[str, object]


class DeleteQueue(NamedTuple):
    """A queue ends; what is ready or delivering is evicted, what is scheduled removed (R90)."""

    queue: str


class Pause(NamedTuple):
    """Stop pulling or dispatch (R90). Settles and due times go on."""

    queue: str
    what: str


class Resume(NamedTuple):
    """Go on with pulling or dispatch (R90)."""

    queue: str
    what: str


class Purge(NamedTuple):
    """Evict all that is ready, lowest position first (R90)."""

    queue: str


class Remove(NamedTuple):
    """Take one ready or scheduled message out (R90)."""

    queue: str
    message: str


class Move(NamedTuple):
    """Move one ready or scheduled message to another queue of the same partition (R90)."""

    queue: str
    message: str
    to: str


class CancelScheduled(NamedTuple):
    """Take one scheduled message out (R34)."""

    queue: str
    message: str


class DeliverNow(NamedTuple):
    """Make one scheduled message due now (R34)."""

    queue: str
    message: str


class Sweep(NamedTuple):
    """Do what time has brought: expiry, due messages, silent consumers (R13, R32, R50)."""


Command = (
    Send | Attach | Subscribe | Credit | Heartbeat | Ack | Release | Reject | Detach | Recover
    | Rollback | Begin | Prepare | Commit | RollbackXid | Start | CreateQueue | Configure
    | ConfigureAddress | DeleteQueue | Pause | Resume | Purge | Remove | Move | CancelScheduled
    | DeliverNow | Sweep
)  # fmt: skip
