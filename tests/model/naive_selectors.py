"""A few fixed selectors (R15), each beside a predicate of Python's that says what it means."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ringfaust.protocol.headers import PROPERTIES as HEADER
from ringfaust.protocol.records import Payload

if TYPE_CHECKING:
    from tests.model.naive_queue import Message

Properties = Mapping[str, Any]

PROPERTIES: tuple[Properties, ...] = (
    {},
    {"color": "red", "size": 3},
    {"color": "blue", "size": 7.5},
    {"size": 9, "fresh": True},
)
PAYLOADS = tuple(
    Payload(
        None, b"body", (("h", b"1"), *([(HEADER, json.dumps(each).encode())] if each else [])),
        "in/0/7",
    )
    for each in PROPERTIES
)  # fmt: skip
_OF_HEADERS = {
    tuple(payload.headers): each for payload, each in zip(PAYLOADS, PROPERTIES, strict=True)
}

SELECTORS: dict[str, Callable[[Message, Properties], bool]] = {
    "color = 'red'": lambda m, p: p.get("color") == "red",
    "color <> 'red'": lambda m, p: "color" in p and p["color"] != "red",
    "size > 5": lambda m, p: "size" in p and p["size"] > 5,
    "NOT (size > 5)": lambda m, p: "size" in p and p["size"] <= 5,
    "color IS NULL": lambda m, p: "color" not in p,
    "fresh = TRUE OR size BETWEEN 1 AND 4": lambda m, p: "fresh" in p or 1 <= p.get("size", 0) <= 4,
    "JMSPriority >= 4": lambda m, p: m.priority >= 4,
    "JMSXGroupID = 'g'": lambda m, p: m.group == "g",
    "JMSRedelivered = FALSE": lambda m, p: not m.handovers,
    "JMSXDeliveryCount > 1": lambda m, p: m.attempts > 0,
    "JMSDeliveryMode = 'NON_PERSISTENT' AND h = 1": lambda m, p: not m.persistent,
}
BAD_SELECTORS = ("color = = 'red'", " ", "size >", "color LIKE 3")


def selects(selector: str, message: Message) -> bool:
    """Does the selector want the message? Unknown is no."""
    if not selector:
        return True
    headers = tuple(message.payload.headers)
    return SELECTORS[selector](message, _OF_HEADERS.get(headers, {}))
