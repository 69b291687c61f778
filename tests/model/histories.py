"""Whole histories that hypothesis draws: commands with their times, and where they are played."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ringfaust.core import commands as c
from tests.model import strategies as s

History = list[tuple[c.Command, int]]
Commands = st.SearchStrategy[c.Command]

MESSAGE_ID = st.integers(0, 9).map("m{}".format)
MAYBE_XID = st.sampled_from(["", "", *s.XIDS])


def _sends(queue: st.SearchStrategy[str], xid: st.SearchStrategy[str]) -> Commands:
    return st.builds(
        lambda draft, queue, message_id, xid: draft.send(queue, message_id, 0, xid),
        s.MESSAGE, queue, MESSAGE_ID, xid,
    )  # fmt: skip


def _of_consumers(queue: st.SearchStrategy[str]) -> list[Commands]:
    consumer = s.CONSUMER
    return [
        st.builds(c.Detach, queue=queue, consumer=consumer),
        st.builds(c.Recover, queue=queue, consumer=consumer),
        st.builds(c.Heartbeat, queue=queue, consumer=consumer),
        st.builds(c.Credit, queue=queue, consumer=consumer, add=st.sampled_from([1, 2, -1])),
    ]


def _settles(queue: st.SearchStrategy[str], xid: st.SearchStrategy[str]) -> Commands:
    parts: dict[str, Any] = {
        "queue": queue, "consumer": s.CONSUMER, "message": MESSAGE_ID,
        "delivery": st.sampled_from([0, 0, 0, 1, 2, 3]),
    }  # fmt: skip
    others = [st.builds(kind, **parts) for kind in (c.Release, c.Reject)]
    acks = st.builds(c.Ack, **parts, xid=xid, owner=s.OWNER)
    return st.one_of(acks, acks, *others)


def _of_operators(
    queue: st.SearchStrategy[str], settings: st.SearchStrategy[Any]
) -> list[Commands]:
    return [
        st.builds(c.Configure, queue, settings | s.BAD_SETTINGS | s.TAKEN_BACK),
        st.builds(c.CreateQueue, queue, settings),
        st.builds(c.DeleteQueue, queue),
        st.builds(c.Pause, queue, s.WHAT),
        st.builds(c.Resume, queue, s.WHAT),
        st.builds(c.Purge, queue),
        st.builds(c.Move, queue, MESSAGE_ID, queue),
        st.builds(c.Remove, queue, MESSAGE_ID),
        st.builds(c.CancelScheduled, queue, MESSAGE_ID),
        st.builds(c.DeliverNow, queue, MESSAGE_ID),
        st.builds(c.Rollback, s.SESSION),
    ]


_BEGIN = st.builds(c.Begin, s.XID, s.OWNER, s.XID_TIMEOUT)
_XIDS = st.one_of(
    _BEGIN, _BEGIN, *(st.builds(kind, s.XID) for kind in (c.Prepare, c.Commit, c.RollbackXid))
)
_CONFIGURE_ADDRESS = st.builds(
    c.ConfigureAddress, s.ADDRESS, s.ADDRESS_SETTINGS | s.BAD_ADDRESS_SETTINGS
)


def _sent_at(send: c.Send, now: int) -> c.Send:
    return send._replace(
        sent_ms=now,
        due_ms=now + send.due_ms if send.due_ms else 0,
        expires_at_ms=now + send.expires_at_ms if send.expires_at_ms else 0,
    )


def _at_their_times(steps: History) -> History:
    """Waits become times; a message's own times count from its send."""
    now = 1_000
    found = []
    for command, wait in steps:
        now += wait
        found.append((_sent_at(command, now) if isinstance(command, c.Send) else command, now))
    return found


def _histories(*kinds: Commands) -> st.SearchStrategy[History]:
    """In parts, since hypothesis seldom draws a list of more than a few."""
    some = st.lists(st.tuples(st.one_of(*kinds), s.WAIT), max_size=30)
    return st.tuples(*[some] * 8).map(lambda parts: _at_their_times(sum(parts, [])))


_NO_XID = st.just("")
_RING_SEND = _sends(s.QUEUE, _NO_XID)
_RING_SETTLE = _settles(s.QUEUE, _NO_XID)

DECLARED_RINGS = st.fixed_dictionaries({"a": s.RING_SETTINGS, "b": s.RING_SETTINGS})
RING_HISTORY = _histories(
    _RING_SEND, _RING_SEND, _RING_SEND, s.PLAIN_ATTACH, s.PLAIN_ATTACH, st.just(c.Sweep()),
    st.one_of(_of_consumers(s.QUEUE)), _RING_SETTLE, _RING_SETTLE,
    st.one_of(_of_operators(s.QUEUE, s.RING_SETTINGS)),
)  # fmt: skip
"""Queues and their rings; no addresses, limits or distributed transactions."""

_SEND = _sends(s.DESTINATION, MAYBE_XID)
_SETTLE = _settles(s.ANY_QUEUE, MAYBE_XID)
_COMPAT = st.fixed_dictionaries({"compat": st.sampled_from(["default", "default", "artemis"])})
_SWITCH = st.builds(c.Configure, s.ANY_QUEUE, _COMPAT)
_JOIN = st.one_of(s.ATTACH, s.SUBSCRIBE)


def _in_either_mode(
    settings: st.SearchStrategy[dict[str, Any]],
) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda fields, compat: {**fields, **compat}, settings, _COMPAT)


DECLARED = st.fixed_dictionaries(
    {
        "queues": st.fixed_dictionaries(
            {"a": _in_either_mode(s.SETTINGS), "b": _in_either_mode(s.SETTINGS)}
        ),
        "addresses": s.DECLARED_ADDRESSES,
        "settings": st.fixed_dictionaries({"p": _in_either_mode(s.RING_SETTINGS)}),
    }
)
"""What `Partition` and `Model` take."""


def _applied(content: dict[str, Any], revision: int) -> c.Apply:
    return c.Apply(revision, {"routes": [], **content}, "somebody", "some text")


_RING = _in_either_mode(s.RING_SETTINGS)
_APPLY = st.builds(
    _applied,
    st.fixed_dictionaries(
        {
            "queues": st.fixed_dictionaries({"a": _RING, "b": _RING | s.BAD_SETTINGS}),
            "addresses": st.fixed_dictionaries({
                "p": st.builds(
                    lambda own, one: {**own, "subscriptions": {"one": one}},
                    s.ADDRESS_SETTINGS, s.RING_SETTINGS,
                ),
                "r": st.builds(lambda own: {**own, "routing": "anycast"}, s.ADDRESS_SETTINGS),
            }),
            "settings": st.fixed_dictionaries({"p": _RING}),
        }
    ),
    st.integers(1, 9),
)  # fmt: skip
_LEVEL = st.builds(c.RaiseLevel, st.integers(1, 3))
HISTORY = _histories(
    _SEND, _SEND, _SEND, _SEND, _JOIN, _JOIN, st.just(c.Sweep()),
    st.one_of(_of_consumers(s.ANY_QUEUE)), _SETTLE, _SETTLE, _XIDS,
    st.one_of(
        *_of_operators(s.ANY_QUEUE, s.SETTINGS), _CONFIGURE_ADDRESS, _SWITCH, _APPLY, _APPLY, _LEVEL
    ),
)  # fmt: skip
"""All commands but `Start`, which comes with a crash."""
