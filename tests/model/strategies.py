"""What hypothesis draws from: few names and small numbers, so that things meet."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from ringfaust.core import commands as c
from ringfaust.core.model import AckMode
from tests.model.naive_selectors import BAD_SELECTORS, PAYLOADS, SELECTORS

QUEUES = ("a", "b", "c", "d")
"""a and b are declared, c and d may be created."""
ADDRESSES = ("p", "r")
"""Both are declared: p is multicast and has p::one, r is anycast."""
XIDS = ("x", "y")
SESSIONS = ("s", "t")
CONSUMERS = ("k1", "k2", "k3", "k4")

QUEUE = st.sampled_from("a" * 16 + "b" * 6 + "ccd")
_PARTS = ["p::one"] * 8 + ["p::two", "p::d", "p::k1", "p::k2", "r::q", "p::", "n::q"]
PART = st.sampled_from(_PARTS)
"""Queues of addresses."""
ANY_QUEUE = st.sampled_from([*"aaaaaaaaaaaaaaaabbbbccd", *_PARTS])
DESTINATION = st.sampled_from([*"aaaaaaaaaaaaaaaabbc", *"ppppppr", *_PARTS[7:]])
ADDRESS = st.sampled_from(["p"] * 8 + ["r", "n"])
XID = st.sampled_from(XIDS)
OWNER = st.sampled_from(["o"] * 12 + ["other", ""])
XID_TIMEOUT = st.sampled_from([300_000, 300_000, 20, 5, 1, 0])
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

_RING = {
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
}
_LIMITS = {
    "max_messages": st.sampled_from([5, -1, 2, 3, 4, 0]),
    "max_bytes": st.sampled_from([6_000, -1, 250, 400, 100]),
    "max_message_bytes": st.sampled_from([-1, -1, 100]),
}
_WHEN_FULL = {
    "when_full": st.sampled_from(
        ["drop_oldest", "drop_lowest_priority", "reject_newest", "drop_newest", "block"]
    )
}
_REST = {
    "max_redrives": st.sampled_from([-1, 0, 1, 5]),
    "selector": st.sampled_from([""] * 8 + [*SELECTORS]),
    "shared": st.booleans(),
    "durable": st.sampled_from([True, True, True, False]),
    "window": st.sampled_from([0, 0, 0, 0, 1, 2]),
    "window_lease": st.sampled_from([300_000, 0, 5, 20]),
    "max_groups": st.sampled_from([0, 1, 1000]),
    "dedup_window": st.sampled_from([0, 5, 20, 1_000]),
}
RING_SETTINGS = st.fixed_dictionaries({}, optional=_RING)
SETTINGS = st.one_of(
    RING_SETTINGS,
    RING_SETTINGS,
    st.fixed_dictionaries(_WHEN_FULL, optional=_RING | _LIMITS),
    st.fixed_dictionaries(_WHEN_FULL, optional=_LIMITS),
    st.fixed_dictionaries({}, optional=_RING | _LIMITS | _WHEN_FULL | _REST),
)
ADDRESS_SETTINGS = st.fixed_dictionaries(
    {}, optional={"retroactive_count": st.sampled_from([0, 1, 2, 3, 5])}
)
DECLARED_ADDRESSES = st.fixed_dictionaries(
    {
        "p": st.builds(
            lambda own, one: {**own, "subscriptions": {"one": one}}, ADDRESS_SETTINGS, SETTINGS
        ),
        "r": st.builds(lambda own: {**own, "routing": "anycast"}, ADDRESS_SETTINGS),
    }
)
BAD_SETTINGS = st.sampled_from(
    [
        {"ring_size": 0}, {"ring_size": -7}, {"ring_size": True}, {"ring_size": "3"},
        {"evict": "newest"}, {"nonsense": 1}, {"batch": 0}, {"ring_size": 2, "max_attempts": 0},
        {"redelivery_multiplier": 0.5}, {"redelivery_jitter": float("nan")},
        {"when_full": "burst"}, {"max_messages": -2}, {"max_bytes": 1.5}, {"shared": 1},
        *({"selector": each} for each in BAD_SELECTORS),
    ]
)  # fmt: skip
TAKEN_BACK = st.sampled_from(
    [{"ring_size": None}, {"ring_size": None, "max_attempts": 2}, {"nonsense": None}]
)
BAD_ADDRESS_SETTINGS = st.sampled_from(
    [{"retroactive_count": -1}, {"retroactive_count": True}, {"routing": "broadcast"}, {"n": 1}]
)


class Draft(NamedTuple):
    """A message to be sent at some time."""

    priority: int
    delay_ms: int
    ttl_ms: int
    """0: for ever; below: it has passed already."""
    group: str
    size_bytes: int
    payload: int
    """Index of one of `PAYLOADS`."""
    persistent: bool
    redrives: int
    owner: str

    def send(self, queue: str, message_id: str, now: int, xid: str = "") -> c.Send:
        due_ms = now + self.delay_ms if self.delay_ms else 0
        expires_ms = now + self.ttl_ms if self.ttl_ms else 0
        return c.Send(
            queue, message_id, now, self.priority, due_ms, expires_ms, self.group,
            self.size_bytes, PAYLOADS[self.payload], self.persistent, xid, self.redrives,
            f"{queue}/1" if self.redrives else "", self.owner if xid else "",
        )  # fmt: skip


MESSAGE = st.builds(
    Draft,
    priority=st.sampled_from([4, 4, 4, 0, 9]),
    delay_ms=st.sampled_from([0] * 8 + [1, 4, 9, 30, -3]),
    ttl_ms=st.sampled_from([0] * 9 + [1, 3, 9, 30, -1]),
    group=st.sampled_from(["", "", "", "g", "h"]),
    size_bytes=st.sampled_from([0, 100, 100, 101, 5_000]),
    payload=st.integers(0, len(PAYLOADS) - 1),
    persistent=st.sampled_from([True, True, False]),
    redrives=st.sampled_from([0] * 25 + [1, 2, 6]),
    owner=OWNER,
)
_JOINS: dict[str, st.SearchStrategy[object]] = {
    "consumer": CONSUMER,
    "credit": st.sampled_from([2, 1, 2, 3, 3, 5, 9, 9, 9, 0]),
    "priority": st.sampled_from([0, 0, 0, 5]),
    "ack_mode": st.sampled_from(
        [AckMode.INDIVIDUAL, AckMode.AUTO, AckMode.CLIENT, AckMode.CLIENT, AckMode.NONE]
    ),
    "session": st.sampled_from(["", *SESSIONS]),
    "selector": st.sampled_from([""] * 30 + [*SELECTORS]),
    "credit_bytes": st.sampled_from([0] * 8 + [1, 150]),
}
BAD_JOINS = st.sampled_from(
    [{}] * 20
    + [
        {"credit": -1},
        {"credit_bytes": -1},
        {"selector": BAD_SELECTORS[0]},
        {"consumer": "@window"},
    ]
)
PLAIN_ATTACH = st.builds(c.Attach, queue=QUEUE, **_JOINS)
ATTACH = st.builds(c.Attach, queue=ANY_QUEUE, **_JOINS)
SUBSCRIBE = st.builds(
    c.Subscribe,
    address=ADDRESS,
    subscription=st.sampled_from(["", "", "", "d", "one", "k1"]),
    client=st.sampled_from(["", "", "me"]),
    shared=st.booleans(),
    **_JOINS,
)
