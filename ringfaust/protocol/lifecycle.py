"""The life of a message: every event, its fields, what it changes, and what `trace` says of it.

An event is declared here and nowhere else. Derived from it are the JSON Schema of the event lines,
the tables in docs/protocol.md, the columns of the lake, the sentences of `ringfaust trace`, and
every check whether an event is legal: in the audit, the accounts of the demo and of chaos, the
simulator, and the tests of the engine. A test compares the writers of event lines with it.

To check it against the contract, read the table from top to bottom. A message is `new` until it
enters a queue. There it is ready, delivering or scheduled. In the end it has `ended`. The `moves`
of an event say from which states to which it leads; of several, the first that applies counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Literal, NamedTuple

from ringfaust.core.model import (
    COUNTS,
    HELD_STATES,
    TOTALS,
    Counts,
    DeadReason,
    EvictReason,
    HeldState,
    Refusal,
)
from ringfaust.protocol.gaps import GapCause
from ringfaust.times import age_text, time_text

__all__ = [
    "ABOUT_MESSAGES", "BY", "COUNTS", "DELIVERING", "ENDED", "ENTRY_EVENTS", "EVENT", "EVENTS",
    "EXIT_EVENTS", "HELD_STATES", "NEW", "READY", "SCHEDULED", "STEP", "TIME", "TOTALS",
    "WITHOUT_STEP", "Counts", "Event", "Field", "HeldState", "Kind", "Line", "Move", "times",
]  # fmt: skip

Line = Mapping[str, Any]
"""A line of the events topic."""

READY, DELIVERING, SCHEDULED = HELD_STATES
NEW = "new"
"""State of a message that has not entered its queue."""
ENDED = "ended"
"""State of a message that has left its queue."""


# --- fields ---------------------------------------------------------------------------------------


class Kind(Enum):
    """The type of a field."""

    TEXT = auto()
    LONG = auto()
    """A whole number from 0, of up to 64 bits."""
    INT = auto()
    """A whole number from 0, of up to 32 bits."""
    SIGNED = auto()
    """A whole number of up to 32 bits that may be negative."""
    FLAG = auto()
    SETTINGS = auto()
    """An object: settings by name."""
    COUNTS = auto()
    """An object: the counts of a queue (R100) by name."""


class Field(NamedTuple):
    """A field of an event."""

    name: str
    kind: Kind
    meaning: str
    values: Any = None
    """The enumeration of its values; None: any."""
    optional: bool = False
    """Whether lines to which it does not apply lack it."""
    nullable: bool = False
    note: str = ""
    """What is special about it in this event."""


STEP = Field("step", Kind.LONG, "counts up within the partition")
EVENT = Field("event", Kind.TEXT, "the name of the event")
TIME = Field("time_ms", Kind.LONG, "when it happened, in ms since 1970")
BY = Field("by", Kind.TEXT, "the record that caused it, `tick` or `start`")

_QUEUE = Field("queue", Kind.TEXT, "the queue")
_SEQUENCE = Field("sequence", Kind.LONG, "the message's number in its queue, from 1")
_ID = Field("id", Kind.TEXT, "the message id")
_SOURCE = Field("source", Kind.TEXT, "the producer's record, as `topic/partition/offset`")
_CONSUMER = Field("consumer", Kind.TEXT, "the consumer; in `dead` and `expired` empty if none")
_DELIVERY = Field("delivery", Kind.LONG, "the delivery's number in its partition, from 1")
_ATTEMPT = Field("attempt", Kind.INT, "deliveries so far that count against `max_attempts` (R40)")
_HANDOVERS = Field("handovers", Kind.INT, "all deliveries so far (R24)")
_PRIORITY = Field("priority", Kind.SIGNED, "of the message, or of the consumer")
_DUE = Field("due_ms", Kind.LONG, "when the message is or was due, in ms since 1970")
_EXPIRES = Field("expires_at_ms", Kind.LONG, "when its time to live ends, in ms since 1970")
_REASON = Field("reason", Kind.TEXT, "why: see the tables of reasons")
_CAUSE = Field("cause", Kind.TEXT, "id of the message that took the place; may be empty")
_ABOUT = Field("about", Kind.TEXT, "the message id or consumer that it is about")
_PARTITION = Field("partition", Kind.LONG, "of the input topic")
_TEXT = Field("text", Kind.TEXT, "a sentence for people; may be empty")
_XID = Field("xid", Kind.TEXT, "name of the distributed transaction (R81)")
_SETTINGS = Field("settings", Kind.SETTINGS, "the settings that changed, by name")

_MESSAGE = (_QUEUE, _SEQUENCE, _ID)
_HELD = (*_MESSAGE, _CONSUMER, _DELIVERY, _ATTEMPT, _HANDOVERS)
_ENTERED = (
    *_MESSAGE, _SOURCE,
    Field("enqueued_ms", Kind.LONG, "when it was sent, in ms since 1970"),
    _PRIORITY,
    Field("size_bytes", Kind.LONG, "size of the message"),
    _DUE._replace(optional=True),
    _EXPIRES._replace(optional=True),
    Field("group", Kind.TEXT, "its message group", optional=True),
)  # fmt: skip


# --- events ---------------------------------------------------------------------------------------


class Move(NamedTuple):
    """How an event changes the state of its message, and a count of its queue."""

    before: tuple[str, ...]
    """The states in which the message may be."""
    after: str
    counted: str = ""
    """The count of R100 that goes up by one; empty: none. Those of the states follow the state."""
    unless: str = ""
    """A number of the line: the move applies if it is 0 or missing."""
    reasons: tuple[str, ...] = ()
    """The reasons with which it applies; empty: with any."""

    def applies(self, line: Line) -> bool:
        """Tell whether a line of the event makes this move."""
        is_reason = not self.reasons or line["reason"] in self.reasons
        return is_reason and not (self.unless and line.get(self.unless))


Sentence = Callable[[Line], str]


class Event(NamedTuple):
    """An event: what a line of the events topic says."""

    name: str
    what: str
    fields: tuple[Field, ...]
    """In the order of the line, without `step`, `event`, `time_ms` and `by`. New ones go last."""
    says: Sentence | None = None
    """What `trace` says; None: it is not about a message."""
    moves: tuple[Move, ...] = ()
    """Empty: it changes the state of no message."""
    answer: Sentence | None = None
    """What `trace` answers if it is the last event of its message; None: `says`."""
    record: str = ""
    """The topic that gets a record of the message: dispatched, evicted or dead."""
    has_step: bool = True
    """False: a line shows the number of an earlier step."""

    def move(self, line: Line) -> Move:
        """Return the move that a line of this event makes. The event must have moves."""
        return next(move for move in self.moves if move.applies(line))

    def ends_named_delivery(self, move: Move) -> bool:
        """Tell whether the line names the delivery that the move ends."""
        return move.before == (DELIVERING,) and any(f.name == "delivery" for f in self.fields)


def times(count: int) -> str:
    """How often, in words."""
    return "once" if count == 1 else f"{count:,} times"


def _added(line: Line) -> str:
    return (
        f"entered the queue from {line['source']} with priority {line['priority']}, "
        f"{line['size_bytes']:,} bytes."
    )


def _returned(line: Line) -> str:
    until = f" until {time_text(line['due_ms'])}" if line.get("due_ms") else ""
    waits = f"and waits{until}" if until else "and is ready again"
    return f"came back from {line['consumer']} unsettled {waits}."


def _evicted(line: Line) -> str:
    held = f"{line['ready']:,} of {line['ring_size']:,}"
    made_room = f" to make room for {line['cause']}" if line["cause"] else ""
    why = {
        "overflow": f"evicted{made_room}: the ring was full ({held})",
        "return_overflow": f"evicted when it came back: the ring was full ({held})",
        "scheduled_overflow": f"evicted when it was due: the ring was full ({held})",
        "limit": f"evicted{made_room}: the queue was at its limit",
        "shrink": f"evicted because the ring was made smaller ({line['ring_size']:,})",
        "purge": "evicted because an operator purged or deleted the queue",
    }.get(line["reason"], f"evicted ({line['reason']})")
    handovers = line["handovers"]
    delivered = f"delivered {times(handovers)}" if handovers else "never delivered"
    return f"{why}. It was {age_text(line['age_ms'])} old, {delivered}."


def _expired(line: Line) -> str:
    held = f" while {line['consumer']} held it" if line["delivery"] else ""
    return f"expired{held}: its time to live ended at {time_text(line['expires_at_ms'])}."


def _dead(line: Line) -> str:
    if line["sequence"] == 0:
        return f"refused ({line['reason']}): {line['text']}. It is in the dead topic."
    text = f": {line['text']}" if line["text"] else ""
    why = {
        "undeliverable": f"given up after {line['attempt']} attempts",
        "rejected": f"rejected by {line['consumer']}{text}",
    }.get(line["reason"], f"{line['reason']}{text}")
    return f"{why}. It is in the dead topic."


def _waits_ready(line: Line) -> str:
    return "it is in the queue, ready to be delivered."


_TABLE = (
    Event(
        "added", "a message entered its queue", _ENTERED, _added,
        (Move((NEW,), READY, "added"),),
        answer=_waits_ready,
    ),
    Event(
        "scheduled", "a message entered and waits for its time", _ENTERED,
        lambda e: f"scheduled from {e['source']}: it is due at {time_text(e.get('due_ms', 0))}.",
        (Move((NEW,), SCHEDULED, "added"),),
        answer=lambda e: f"it is scheduled for {time_text(e.get('due_ms', 0))}.",
    ),
    Event(
        "due", "a scheduled message became ready", (*_MESSAGE, _DUE),
        lambda e: "became due and is ready.",
        (Move((SCHEDULED,), READY),),
        answer=_waits_ready,
    ),
    Event(
        "dispatched", "handed to a consumer", _HELD,
        lambda e: (
            f"delivered to {e['consumer']} (delivery {e['delivery']}, attempt {e['attempt']})."
        ),
        (Move((READY,), DELIVERING),),
        answer=lambda e: f"{e['consumer']} holds it and has not settled it yet.",
        record="dispatched",
    ),
    Event(
        "acked", "accepted, and gone", _HELD,
        lambda e: f"acked by {e['consumer']} (delivery {e['delivery']}).",
        (Move((DELIVERING,), ENDED, "acked"),),
    ),
    Event(
        "returned",
        "the delivery ended; the message is ready again, or scheduled if `due_ms` is there",
        (*_HELD, _DUE._replace(optional=True)), _returned,
        (Move((DELIVERING,), READY, unless="due_ms"), Move((DELIVERING,), SCHEDULED)),
    ),
    Event(
        "evicted", "evicted",
        (
            *_MESSAGE, _REASON._replace(values=EvictReason), _CAUSE,
            Field("ready", Kind.INT, "how many messages were ready, without the evicted one"),
            Field("ring_size", Kind.SIGNED, "the size of the ring; -1: no limit"),
            Field("age_ms", Kind.LONG, "time since the message was sent"),
            _HANDOVERS,
        ),
        _evicted,
        (
            Move((DELIVERING,), ENDED, "evicted", reasons=(EvictReason.RETURN_OVERFLOW,)),
            Move(
                (READY, SCHEDULED), ENDED, "evicted",
                reasons=(EvictReason.SCHEDULED_OVERFLOW, EvictReason.LIMIT),
            ),
            Move((READY,), ENDED, "evicted"),
        ),
        record="evicted",
    ),
    Event(
        "expired", "its time ran out",
        (
            *_MESSAGE, _EXPIRES,
            _CONSUMER._replace(note="the last one that held it; may be empty"),
            _DELIVERY._replace(note="the one that ended with it; otherwise 0"),
        ),
        _expired,
        (
            Move((READY, SCHEDULED), ENDED, "expired", unless="delivery"),
            Move((DELIVERING,), ENDED, "expired"),
        ),
        record="dead",
    ),
    Event(
        "dead", "out of attempts, rejected or refused",
        (
            _QUEUE, _SEQUENCE._replace(note="0 if the queue refused it"), _ID,
            _SOURCE._replace(optional=True, note="if the queue refused it"),
            _REASON._replace(values=DeadReason | Refusal), _CONSUMER, _ATTEMPT, _TEXT,
        ),
        _dead,
        (
            Move((NEW,), ENDED, "refused", unless="sequence"),
            Move((DELIVERING,), ENDED, "dead"),
        ),
        record="dead",
    ),
    Event(
        "lost", "a non-persistent message was lost in a crash (R82)",
        (*_MESSAGE, _DELIVERY._replace(optional=True, note="the one that ended with it")),
        lambda e: "lost in a crash of the worker: it was not persistent.",
        (Move(HELD_STATES, ENDED, "lost"),),
    ),
    Event(
        "removed", "an operator removed it", _MESSAGE,
        lambda e: "removed by an operator, or cancelled.",
        (Move((READY, SCHEDULED), ENDED, "removed"),),
    ),
    Event(
        "moved_out", "an operator moved it to the queue `to`",
        (*_MESSAGE, Field("to", Kind.TEXT, "the other queue")),
        lambda e: f"moved to queue {e['to']} by an operator.",
        (Move((READY, SCHEDULED), ENDED, "moved_out"),),
    ),
    Event(
        "unrouted", "no queue of the address `queue` accepted the message (R70)",
        (_QUEUE, _SEQUENCE._replace(note="0"), _ID, _SOURCE),
        lambda e: "no queue of the address accepted it.",
    ),
    Event(
        "pending", "a send or an ack waits for the decision about `xid` (R81)",
        (_QUEUE, _XID, _ABOUT._replace(note="the message id")),
        lambda e: f"waits for the decision about transaction {e['xid']}.",
    ),
    Event(
        "decided", "the transaction was decided",
        (
            _QUEUE._replace(note="empty"), _XID,
            Field("committed", Kind.FLAG, "whether the transaction was committed"),
        ),
        lambda e: (
            f"transaction {e['xid']} was rolled back: what was sent in it never entered a queue."
        ),
    ),
    Event(
        "attached",
        "a consumer attached, `active` or as a backup; also when a backup takes over",
        (_QUEUE, _CONSUMER, Field("active", Kind.FLAG, "false: a backup (R11)"), _PRIORITY),
    ),
    Event(
        "detached", "a consumer left, on its own or because of a `timeout`",
        (_QUEUE, _CONSUMER, Field("timeout", Kind.FLAG, "whether its time ran out (R13)")),
    ),
    Event(
        "configured", "settings changed; also when a queue is created, with `created`",
        (_QUEUE, _SETTINGS, Field("created", Kind.FLAG, "whether the queue is new")),
    ),
    Event(
        "configured_address", "settings of the address `queue` changed", (_QUEUE, _SETTINGS),
    ),
    Event(
        "paused", "pulling or dispatch was paused, or resumed if `paused` is false",
        (
            _QUEUE, Field("what", Kind.TEXT, "pulling or dispatch (R90)"),
            Field("paused", Kind.FLAG, "false: resumed"),
        ),
    ),
    Event(
        "applied", "the partition uses another configuration from here on (R128)",
        (
            _QUEUE._replace(note="empty"),
            Field("revision", Kind.LONG, "the number of the configuration"),
            Field("who", Kind.TEXT, "who has applied it"), _TEXT,
        ),
    ),
    Event(
        "deleted", "a queue was deleted; its last counts",
        (_QUEUE, Field("counts", Kind.COUNTS, "the counts of the queue (R100)")),
    ),
    Event(
        "refused", "a command changed nothing",
        (
            _QUEUE._replace(note="empty if none was named"),
            _REASON._replace(values=Refusal), _ABOUT, _TEXT,
        ),
        lambda e: f"refused ({e['reason']}): {e['text']}.",
        has_step=False,
    ),
    Event(
        "unreadable", "an undecodable, oversized or skipped record went to the dead topic",
        (
            _SOURCE._replace(optional=True, note="if it came through the repartition topic"),
            _REASON._replace(values=Literal["undecodable", "too_large", "skipped"]), _TEXT,
        ),
        lambda e: f"is in the dead topic, and in no queue ({e['reason']}): {e['text']}.",
        has_step=False,
    ),
    Event(
        "gap", "records of an input topic can no longer be read, and were not processed (R112)",
        (
            Field("topic", Kind.TEXT, "the input topic"), _PARTITION,
            Field("first", Kind.LONG, "offset of the first record that is missing"),
            Field(
                "last", Kind.LONG, "offset of the last one", nullable=True,
                note="null if nobody knows where the log ended",
            ),
            _CAUSE._replace(values=GapCause, note="deleted, truncated, recreated"),
            Field(
                "gaps", Kind.LONG, "how many gaps there have been, with this one",
                note="of this partition of the topic so far, in this worker for a topic that is "
                "repartitioned",
            ),
            _TEXT,
        ),
        lambda e: f"no worker has read it. {e['text']}.",
        has_step=False,
    ),
    Event(
        "misplaced",
        "the first message of a queue or address that is named after a key came from another "
        "partition than the key's (R113)",
        (
            _QUEUE, _PARTITION,
            Field("home", Kind.LONG, "where Kafka's default partitioner puts records with the key"),
            _TEXT,
        ),
        lambda e: f"{e['text']}.",
        has_step=False,
    ),
    Event(
        "done", "the end of a command that was not refused",
        (Field("command", Kind.TEXT, "the type of the command"),),
    ),
)  # fmt: skip

EVENTS: Mapping[str, Event] = {event.name: event for event in _TABLE}
"""Every event by name."""


# --- derived --------------------------------------------------------------------------------------

ABOUT_MESSAGES = tuple(event.name for event in _TABLE if event.moves)
"""The events that change the state of a message."""
ENTRY_EVENTS = tuple(
    event.name for event in _TABLE if any(move.counted == "added" for move in event.moves)
)
"""With these a message enters its queue."""
EXIT_EVENTS = tuple(name for name in COUNTS if name in ABOUT_MESSAGES and name not in ENTRY_EVENTS)
"""With these a message leaves its queue, in the order of the counts, whose names they are."""
WITHOUT_STEP = tuple(event.name for event in _TABLE if not event.has_step)
"""Events whose lines show the number of an earlier step."""
