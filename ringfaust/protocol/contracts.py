"""JSON Schemas of what is on the topics: control records, replies, and lines of events.

Programs in other languages validate and generate code with them. `make schema` writes them to
`docs/contracts/`. Control records are the models that a worker reads with; a test validates every
reply and event of all scenarios against the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, Union

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from typing_extensions import TypedDict

from ringfaust.core.model import AckMode, DeadReason, EvictReason, Refusal
from ringfaust.protocol.control import MODELS
from ringfaust.protocol.gaps import GapCause

Schema = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CLOSED = ConfigDict(extra="forbid")
_Ms = Annotated[int, Field(ge=0)]
_Count = Annotated[int, Field(ge=0)]


def control_schema() -> Schema:
    """Return the schema of a control record's value."""
    any_model: Any = Annotated[Union[tuple(MODELS.values())], Field(discriminator="type")]  # noqa: UP007
    return _schema("A control record", TypeAdapter(any_model))


def reply_schema() -> Schema:
    """Return the schema of a reply's value."""
    return _schema("A reply", TypeAdapter(Done | Answered | Refused))


def event_schema() -> Schema:
    """Return the schema of one line of an event record's value."""
    any_model: Any = Annotated[Union[tuple(EVENTS.values())], Field(discriminator="event")]  # noqa: UP007
    return _schema("A line of an event record", TypeAdapter(any_model))


def _schema(title: str, adapter: TypeAdapter[Any]) -> Schema:
    found = adapter.json_schema()
    found.pop("discriminator", None)  # a keyword of OpenAPI alone
    for each in found.get("$defs", {}).values():
        if "enum" in each:
            each.pop("description", None)  # compiled classes have no docstrings
    return {"$schema": _DIALECT, "title": title, **found}


# --- replies --------------------------------------------------------------------------------------


class Timeout(TypedDict):
    """Answer to attach, subscribe and heartbeat."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    consumer_timeout_ms: _Ms


class Counts(TypedDict, total=False):
    """Counts of a queue (R100). In the answer to list_queues those that are 0 are left out."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    ready: _Count
    delivering: _Count
    scheduled: _Count
    added: _Count
    acked: _Count
    evicted: _Count
    expired: _Count
    dead: _Count
    refused: _Count
    removed: _Count
    moved_out: _Count
    lost: _Count
    messages: _Count


class Consumer(TypedDict):
    """A consumer of a queue."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    consumer: str
    active: bool
    priority: int
    ack_mode: AckMode
    credit: _Count
    credit_bytes: _Count
    unsettled: _Count
    unsettled_bytes: _Count
    session: str
    selector: str
    silent_ms: _Ms


class Listing(TypedDict):
    """Answer to list."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    ready: list[str]
    delivering: dict[str, list[str]]
    scheduled: list[str]
    counts: Counts
    pulled: bool
    exists: bool
    settings: dict[str, Any]
    paused: list[str]
    bytes: _Count
    oldest_ms: _Ms
    consumers: list[Consumer]


class Summary(TypedDict):
    """A queue in the answer to list_queues."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    queue: str
    address: str
    counts: Counts
    ring_size: int
    paused: list[str]
    consumers: _Count


class Queues(TypedDict):
    """Answer to list_queues."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    queues: list[Summary]
    next: str | None


class Bytes(TypedDict):
    """The beginning of a key, a body or a header: as text, or base64 if it is no UTF-8."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    text: NotRequired[str]
    base64: NotRequired[str]
    bytes: _Count


class BrowsedMessage(TypedDict):
    """A message in the answer to browse."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    id: str
    sequence: _Count
    priority: int
    enqueued_ms: _Ms
    expires_at_ms: _Ms
    due_ms: _Ms
    group: str
    attempts: _Count
    handovers: _Count
    bytes: _Count
    persistent: bool
    source: str
    key: Bytes | None
    value: Bytes | None
    headers: dict[str, Bytes | None]
    consumer: NotRequired[str]
    delivery: NotRequired[_Count]
    handed_ms: NotRequired[_Ms]
    xid: NotRequired[str]


class Browsed(TypedDict):
    """Answer to browse."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    messages: list[BrowsedMessage]
    next: str | None


class Xid(TypedDict):
    """An undecided distributed transaction."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    name: str
    prepared: bool
    operations: _Count


class Xids(TypedDict):
    """Answer to list_xids."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    xids: list[Xid]


class Done(TypedDict):
    """The command was carried out."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    v: Literal[1]
    ok: Literal[True]


class Answered(TypedDict):
    """The command was carried out, and has an answer."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    v: Literal[1]
    ok: Literal[True]
    answer: Timeout | Listing | Queues | Browsed | Xids


class Refused(TypedDict):
    """The command, or a send, was refused (R103, R62)."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    v: Literal[1]
    ok: Literal[False]
    reason: Refusal
    about: str
    text: str
    delivery: NotRequired[_Count]
    """Of an ack_many: which of its deliveries."""
    queue: NotRequired[str]
    """Of a send."""
    by: NotRequired[str]


# --- events ---------------------------------------------------------------------------------------

_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(
        ("sequence", "enqueued_ms", "size_bytes", "due_ms", "expires_at_ms", "delivery", "attempt",
         "handovers", "ready", "age_ms", "partition", "first", "gaps"), _Count,
    ),
    **dict.fromkeys(("priority", "ring_size"), int),
    **dict.fromkeys(("active", "timeout", "created", "paused", "committed"), bool),
    "settings": dict[str, Any],
    "counts": Counts,
    "last": int | None,
}  # fmt: skip
"""Fields that are not text."""
_HELD = "queue sequence id consumer delivery attempt handovers"
_ADDED = "queue sequence id source enqueued_ms priority size_bytes due_ms? expires_at_ms? group?"
_LINES: Mapping[str, str] = {
    "added": _ADDED,
    "scheduled": _ADDED,
    "due": "queue sequence id due_ms",
    "dispatched": _HELD,
    "acked": _HELD,
    "returned": f"{_HELD} due_ms?",
    "evicted": "queue sequence id reason cause ready ring_size age_ms handovers",
    "expired": "queue sequence id expires_at_ms consumer delivery",
    "dead": "queue sequence id source? reason consumer attempt text",
    "lost": "queue sequence id",
    "removed": "queue sequence id",
    "moved_out": "queue sequence id to",
    "unrouted": "queue sequence id source",
    "pending": "queue xid about",
    "decided": "queue xid committed",
    "attached": "queue consumer active priority",
    "detached": "queue consumer timeout",
    "configured": "queue settings created",
    "configured_address": "queue settings",
    "paused": "queue what paused",
    "deleted": "queue counts",
    "refused": "queue reason about text",
    "unreadable": "reason text",
    "gap": "topic partition first last cause gaps text",
    "done": "command",
}
"""Fields of each event; those with ? are present where they apply."""
_REASONS: Mapping[str, Any] = {
    "evicted": EvictReason,
    "dead": DeadReason | Refusal,
    "refused": Refusal,
    "unreadable": Literal["undecodable", "too_large"],
}


def _event_model(event: str, names: str) -> type[BaseModel]:
    fields: dict[str, Any] = {"step": (_Count, ...), "event": (Literal[event], ...)}
    for each in names.split():
        name = each.rstrip("?")
        kind = _FIELDS.get(name, str)
        kind = _REASONS[event] if name == "reason" else GapCause if name == "cause" and (
            event == "gap"
        ) else kind  # fmt: skip
        fields[name] = (kind | None, None) if each.endswith("?") else (kind, ...)
    fields |= {"time_ms": (_Ms, ...), "by": (str, ...)}
    model: type[BaseModel] = create_model(f"{event}_event", __config__=_CLOSED, **fields)
    return model


EVENTS: Mapping[str, type[BaseModel]] = {
    event: _event_model(event, names) for event, names in _LINES.items()
}
"""The model of a line of each event."""
