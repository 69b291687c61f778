"""What hypothesis draws from: few names and small numbers, so that things meet."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from ringfaust.core import command as c
from ringfaust.core.model import AckMode
from tests.model.harness import PAYLOAD

QUEUES = ("a", "b", "c", "d")
"""a and b are declared, c and d may be created."""
SESSIONS = ("s", "t")
CONSUMERS = ("k1", "k2", "k3", "k4")

QUEUE = st.sampled_from("a" * 16 + "b" * 6 + "ccd")
CONSUMER = st.sampled_from(CONSUMERS)
SESSION = st.sampled_from(SESSIONS)
MS = st.sampled_from([0, 1, 2, 4, 9, 30])
WHAT = st.sampled_from(["dispatch"] * 4 + ["pulling", "it"])
RARE = st.sampled_from(
    ["nothing"] * 12
    + ["purge", "delete", "create", "create badly", "create again", "configure badly"]
    + ["take nothing"]
)
WAIT = st.sampled_from([0, 0, 0, 0, 1, 4, 9, 30])
INDEX = st.integers(0, 30)
"""Which of those there are, counted round."""

SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "ring_size": st.sampled_from([1, 2, 3, 3, 5, -1]),
        "evict": st.sampled_from(["oldest", "head", "lowest_priority"]),
        "shrink": st.sampled_from(["lazy", "eager"]),
        "scheduled_when_full": st.sampled_from(["drop", "displace"]),
        "max_attempts": st.sampled_from([-1, 1, 2, 3]),
        "redelivery_delay": st.sampled_from([0, 3, 10]),
        "redelivery_multiplier": st.sampled_from([1.0, 1.5, 2.0, 3]),
        "redelivery_delay_max": st.sampled_from([-1, 0, 12]),
        "max_active_consumers": st.sampled_from([-1, 1, 2]),
        "max_backup_consumers": st.sampled_from([0, 1, 2]),
        "consumer_timeout": st.sampled_from([0, 0, 30_000, 20, 5]),
        "batch": st.sampled_from([1, 2, 3]),
    },
)
BAD_SETTINGS = st.sampled_from(
    [
        {"ring_size": 0}, {"ring_size": -7}, {"ring_size": True}, {"ring_size": "3"},
        {"evict": "newest"}, {"nonsense": 1}, {"batch": 0}, {"ring_size": 2, "max_attempts": 0},
        {"redelivery_multiplier": 0.5}, {"redelivery_jitter": float("nan")},
    ]
)  # fmt: skip


class Draft(NamedTuple):
    """A message to be sent at some time."""

    priority: int
    delay_ms: int
    ttl_ms: int
    """0: for ever; below: it has passed already."""
    group: str
    size_bytes: int

    def send(self, queue: str, message_id: str, now: int) -> c.Send:
        due_ms = now + self.delay_ms if self.delay_ms else 0
        expires_ms = now + self.ttl_ms if self.ttl_ms else 0
        return c.Send(
            queue, message_id, now, self.priority, due_ms, expires_ms, self.group,
            self.size_bytes, PAYLOAD,
        )  # fmt: skip


MESSAGE = st.builds(
    Draft,
    priority=st.sampled_from([4, 4, 4, 0, 9]),
    delay_ms=st.sampled_from([0] * 8 + [1, 4, 9, 30, -3]),
    ttl_ms=st.sampled_from([0] * 9 + [1, 3, 9, 30, -1]),
    group=st.sampled_from(["", "", "", "g", "h"]),
    size_bytes=st.sampled_from([0, 100, 5_000]),
)
ATTACH = st.builds(
    c.Attach,
    queue=QUEUE,
    consumer=CONSUMER,
    credit=st.sampled_from([2, 1, 2, 3, 3, 5, 9, 9, 9, 0, -1]),
    priority=st.sampled_from([0, 0, 0, 5]),
    ack_mode=st.sampled_from(
        [AckMode.INDIVIDUAL, AckMode.AUTO, AckMode.CLIENT, AckMode.CLIENT, AckMode.NONE]
    ),
    session=st.sampled_from(["", *SESSIONS]),
)


# --- whole histories ----------------------------------------------------------------------------

MESSAGE_ID = st.integers(0, 9).map("m{}".format)
DECLARED = st.fixed_dictionaries({"a": SETTINGS, "b": SETTINGS})


def _of(kind: type[c.Send], **parts: st.SearchStrategy[object]) -> st.SearchStrategy[c.Command]:
    return st.builds(kind, queue=QUEUE, **parts)


_SEND = st.builds(
    lambda draft, queue, message_id: draft.send(queue, message_id, 0), MESSAGE, QUEUE, MESSAGE_ID
)
_OF_CONSUMER = [_of(kind, consumer=CONSUMER) for kind in (c.Detach, c.Recover, c.Heartbeat)] + [
    _of(c.Credit, consumer=CONSUMER, add=st.sampled_from([1, 2, -1]))
]
_SETTLES = [
    _of(kind, consumer=CONSUMER, message=MESSAGE_ID, delivery=st.sampled_from([0, 0, 0, 1, 2, 3]))
    for kind in (c.Ack, c.Ack, c.Release, c.Reject)
]
_OPERATOR = [
    _of(c.Configure, settings=SETTINGS | BAD_SETTINGS),
    _of(c.CreateQueue, settings=SETTINGS),
    _of(c.DeleteQueue),
    _of(c.Pause, what=WHAT),
    _of(c.Resume, what=WHAT),
    _of(c.Purge),
    _of(c.Remove, message=MESSAGE_ID),
    _of(c.Move, message=MESSAGE_ID, to=QUEUE),
    _of(c.CancelScheduled, message=MESSAGE_ID),
    _of(c.DeliverNow, message=MESSAGE_ID),
    st.builds(c.Rollback, SESSION),
]
_ANY = st.one_of(
    _SEND, _SEND, _SEND, ATTACH, ATTACH, st.just(c.Sweep()),
    st.one_of(_OF_CONSUMER), st.one_of(_SETTLES), st.one_of(_SETTLES), st.one_of(_OPERATOR),
)  # fmt: skip


def _sent_at(send: c.Send, now: int) -> c.Send:
    return send._replace(
        sent_ms=now,
        due_ms=now + send.due_ms if send.due_ms else 0,
        expires_at_ms=now + send.expires_at_ms if send.expires_at_ms else 0,
    )


def _at_their_times(steps: list[tuple[c.Command, int]]) -> list[tuple[c.Command, int]]:
    """Waits become times; a message's own times count from its send."""
    now = 1_000
    found = []
    for command, wait in steps:
        now += wait
        found.append((_sent_at(command, now) if isinstance(command, c.Send) else command, now))
    return found


_SOME = st.lists(st.tuples(_ANY, WAIT), max_size=30)
HISTORY = st.tuples(*[_SOME] * 8).map(lambda parts: _at_their_times(sum(parts, [])))
"""In parts, since hypothesis seldom draws a list of more than a few."""
