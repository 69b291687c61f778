"""JSON Schemas of what is on the topics: control records, replies, and lines of events.

Programs in other languages validate and generate code with them. `make generate` writes them to
`docs/contracts/`. Control records are the models that a worker reads with; a test validates every
reply and event of all scenarios against the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, Union

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from typing_extensions import TypedDict

from ringfaust.core.model import COUNTS, AckMode, Refusal
from ringfaust.protocol import lifecycle
from ringfaust.protocol.control import MODELS
from ringfaust.protocol.lifecycle import Event, Kind

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


class _Closed(TypedDict):
    __pydantic_config__ = _CLOSED  # type: ignore[misc]


class Timeout(_Closed):
    """Answer to attach, subscribe and heartbeat."""

    consumer_timeout_ms: _Ms


Counts = TypedDict(  # type: ignore[misc]
    "Counts", dict.fromkeys((*COUNTS, "messages"), _Count), total=False
)
Counts.__doc__ = (
    "Counts of a queue (R100). In the answer to list_queues those that are 0 are left out."
)
Counts.__pydantic_config__ = _CLOSED  # type: ignore[attr-defined]


class Consumer(_Closed):
    """A consumer of a queue."""

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


class Listing(_Closed):
    """Answer to list."""

    ready: list[str]
    delivering: dict[str, list[str]]
    scheduled: list[str]
    counts: Counts
    pulled: bool
    own: dict[str, Any]
    """The settings that were set live, by their names."""
    own_since_ms: dict[str, _Ms]
    """When each of them was set. Not those from before feature level 2."""
    exists: bool
    settings: dict[str, Any]
    paused: list[str]
    bytes: _Count
    oldest_ms: _Ms
    consumers: list[Consumer]
    next: str | None


class Summary(_Closed):
    """A queue in the answer to list_queues."""

    queue: str
    address: str
    counts: Counts
    ring_size: int
    paused: list[str]
    consumers: _Count


class Queues(_Closed):
    """Answer to list_queues."""

    queues: list[Summary]
    next: str | None


class Bytes(_Closed):
    """The beginning of a key, a body or a header: as text, or base64 if it is no UTF-8."""

    text: NotRequired[str]
    base64: NotRequired[str]
    bytes: _Count


class BrowsedMessage(_Closed):
    """A message in the answer to browse."""

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


class Browsed(_Closed):
    """Answer to browse."""

    messages: list[BrowsedMessage]
    next: str | None


class Xid(_Closed):
    """An undecided distributed transaction."""

    name: str
    prepared: bool
    operations: _Count
    began_ms: _Count
    timeout_ms: _Count


class Xids(_Closed):
    """Answer to list_xids."""

    xids: list[Xid]
    next: str | None


class Shown(_Closed):
    """Answer to show_configuration."""

    revision: _Count
    document: dict[str, Any] | None
    who: NotRequired[str]
    text: NotRequired[str]
    applied_ms: NotRequired[_Ms]


class Done(_Closed):
    """The command was carried out."""

    v: Literal[1]
    ok: Literal[True]


class Answered(_Closed):
    """The command was carried out, and has an answer."""

    v: Literal[1]
    ok: Literal[True]
    answer: Timeout | Listing | Queues | Browsed | Xids | Shown


class Refused(_Closed):
    """The command, or a send, was refused (R103, R62)."""

    v: Literal[1]
    ok: Literal[False]
    reason: Refusal
    about: str
    text: str
    delivery: NotRequired[_Count]
    """Which delivery of an ack_many it is about."""
    queue: NotRequired[str]
    """The record that contained the send."""
    by: NotRequired[str]


# --- events ---------------------------------------------------------------------------------------

_TYPES: Mapping[Kind, Any] = {
    Kind.TEXT: str,
    Kind.LONG: _Count,
    Kind.INT: _Count,
    Kind.SIGNED: int,
    Kind.FLAG: bool,
    Kind.SETTINGS: dict[str, Any],
    Kind.COUNTS: Counts,
}


def _field_type(field: lifecycle.Field) -> tuple[Any, Any]:
    """The type of a field and its default, `...` if it must be there."""
    kind = field.values or _TYPES[field.kind]
    if field.nullable:
        kind = int | None
    return (kind | None, None) if field.optional else (kind, ...)


def _event_model(event: Event) -> type[BaseModel]:
    fields: dict[str, Any] = {"step": (_Count, ...), "event": (Literal[event.name], ...)}
    fields |= {field.name: _field_type(field) for field in event.fields}
    fields |= {"time_ms": (_Ms, ...), "by": (str, ...)}
    model: type[BaseModel] = create_model(f"{event.name}_event", __config__=_CLOSED, **fields)
    return model


EVENTS: Mapping[str, type[BaseModel]] = {
    name: _event_model(event) for name, event in lifecycle.EVENTS.items()
}
"""The model of a line of each event."""
