"""The control protocol: a command per record, in JSON that `kcat` can write. See docs/protocol.md.

The commands are declared in `ringfaust.core.commands`. This module derives a model of the JSON from
each: the same fields with the same defaults, and limits on what a client may say. Unknown fields
are refused. A command with `reply` is answered on the replies topic, with `reply` as the key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)

from ringfaust.core import commands as c
from ringfaust.core import limits
from ringfaust.core.model import AckMode, HeldState
from ringfaust.core.settings import stored_names
from ringfaust.errors import ProtocolError

VERSION = 1
MAX_BYTES = 64 * 1024
"""Longest control record. Settings are the largest part of one, and they are short."""

APPLY_BYTES = 256 * 1024
"""Longest record of an `apply`, which has a whole configuration (R128)."""

_TEXT_CHARS = 80
"""How much of the client's input an error text repeats."""

# --- fields ---------------------------------------------------------------------------------------

Name = Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARS, pattern=r"^[^\x00]+$")]
_PLACE_CHARS = limits.NAME_CHARS + 32
"""A topic's name, a partition and an offset."""
Place = Annotated[str, Field(min_length=1, max_length=_PLACE_CHARS, pattern=r"^[^\x00]+$")]
MaybeName = Annotated[str, Field(max_length=limits.NAME_CHARS, pattern=r"^[^\x00]*$")]
MessageId = Annotated[str, Field(min_length=1, max_length=limits.ID_CHARS, pattern=r"^[^\x00]+$")]
Number = Annotated[int, Field(ge=0, le=2**63 - 1, strict=True)]
Ms = Annotated[int, Field(ge=0, le=limits.TIME_MS, strict=True)]


class _RouteFields(BaseModel):
    model_config = ConfigDict(extra="forbid")

    topic: Name
    queue: Annotated[str, Field(min_length=1, max_length=limits.ID_CHARS)]
    hop: Literal["auto", "always", "never"] = "auto"


_Settings = Annotated[dict[str, Any], AfterValidator(stored_names)]


class _AddressFields(BaseModel):
    model_config = ConfigDict(extra="allow")

    subscriptions: dict[Name, _Settings] = {}


class _Configuration(BaseModel):
    """The content of a `queues.yaml`. The core checks the settings."""

    model_config = ConfigDict(extra="forbid")

    routes: list[_RouteFields] = []
    queues: dict[Name, _Settings] = {}
    addresses: dict[Name, _AddressFields] = {}
    settings: dict[Name, _Settings] = {}


def _as_document(content: _Configuration) -> dict[str, Any]:
    """The content without what was left out, so that its rows are the same on every host."""
    return {
        "routes": [route.model_dump() for route in content.routes],
        "queues": content.queues,
        "addresses": {
            name: each.model_dump(exclude_unset=True) for name, each in content.addresses.items()
        },
        "settings": content.settings,
    }


_LIMITS: Mapping[str, Any] = {
    "add": Number,
    "configuration": Annotated[_Configuration, AfterValidator(_as_document)],
    "credit": Annotated[int, Field(ge=0, le=limits.CREDIT, strict=True)],
    "credit_bytes": Number,
    "delay_ms": Ms | None,
    "deliveries": Annotated[
        tuple[tuple[Annotated[int, Field(ge=1, le=2**63 - 1, strict=True)], MessageId], ...],
        Field(min_length=1, max_length=limits.ACKS),
    ],
    "delivery": Number,
    "level": Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)],
    "message": MessageId,
    "priority": Annotated[int, Field(ge=-(2**31), lt=2**31, strict=True)],
    "revision": Annotated[int, Field(ge=1, le=limits.REVISION, strict=True)],
    "selector": str,
    "settings": _Settings,
    "shared": Annotated[bool, Field(strict=True)],
    "text": Annotated[str, Field(max_length=2_000)],
    "timeout_ms": Number,
    "what": Literal["pulling", "dispatch"],
}
"""By field: its type on the wire, where that says more than the type of the command's field.

A field of text that is not listed is a name; one with a default may be empty.
"""
_DEFAULTS: Mapping[type[c.Command], Mapping[str, Any]] = {c.CreateQueue: {"settings": {}}}
"""By command: fields that only have a default on the wire."""
_TYPES = (str, AckMode)


def fields_of(
    command: type[c.Command], *, without: Collection[str] = (), **replaced: Any
) -> dict[str, tuple[Any, Any]]:
    """The fields of a command for `pydantic.create_model`: (type, default) by name, in order.

    Args:
        command: a command of the core.
        without: fields to leave out.
        replaced: fields with other types; each keeps its default.

    Raises:
        TypeError: a field has no limits, so it must be added to `_LIMITS`.
    """
    hints = get_type_hints(command)
    defaults = {**command._field_defaults, **_DEFAULTS.get(command, {})}
    fields = {}
    for name in command._fields:
        if name in without:
            continue
        hint = replaced.get(name) or _LIMITS.get(name)
        if hint is None and hints[name] not in _TYPES:
            raise TypeError(f"{command.__name__}.{name} needs limits in protocol/control.py")
        if hint is None and hints[name] is str:
            hint = MaybeName if name in defaults else Name
        fields[name] = (hint or hints[name], defaults.get(name, ...))
    return fields


# --- models ---------------------------------------------------------------------------------------


class _ReplyRequest(BaseModel):
    """The part of a record that says where to answer; all other fields are ignored."""

    reply: str = Field(default="", max_length=limits.NAME_CHARS)


class ControlRecord(_ReplyRequest):
    """A control record. Each type of command has a model derived from this one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    core: ClassVar[type[c.Command]]
    """The core's command, whose fields have the same names."""
    v: Annotated[int, Field(ge=VERSION, le=VERSION, strict=True)] = VERSION
    type: str

    def command(self) -> c.Command:
        """Build the core's command. The core checks the rest, such as settings."""
        core = self.core
        return core(*map(self.__dict__.__getitem__, core._fields))


class TickRecord(ControlRecord):
    """Sets the time to `now_ms` and does what is due. Only allowed where the log is the clock."""

    core: ClassVar[type[c.Command]] = c.Sweep
    type: Literal["tick"]
    now_ms: Ms
    heard_ms: Ms | None = None

    def command(self) -> c.Command:
        """Build the core's command."""
        return c.Sweep(self.heard_ms)


class QueryRecord(ControlRecord):
    """A question. The reply is the answer; nothing changes, and no event is written (R34)."""


_Limit = Annotated[int, Field(ge=0, le=10_000, strict=True)]
_Count = Annotated[str, Field(max_length=20, pattern=r"^[0-9]*$")]


class ListRecord(QueryRecord):
    """Asks what a queue holds: ids by state, counts, settings, pauses, consumers."""

    type: Literal["list"]
    queue: Name
    after: _Count = ""
    """Only consumers behind this place: the `next` of the previous answer."""
    limit: _Limit = 1_000


class ListQueuesRecord(QueryRecord):
    """Asks for the queues of the partition whose names match a pattern, in order of their names."""

    type: Literal["list_queues"]
    pattern: Name = "#"
    after: MaybeName = ""
    """Only names behind this one: the `next` of the previous answer."""
    limit: _Limit = 1_000


class BrowseRecord(QueryRecord):
    """Asks for the messages of a queue with their bodies, page by page."""

    type: Literal["browse"]
    queue: Name
    state: HeldState = "ready"
    message: Annotated[str, Field(max_length=limits.ID_CHARS)] = ""
    """Only messages with this id; empty: all."""
    selector: str = ""
    """Only messages that match; empty: all."""
    after: Annotated[str, Field(max_length=80, pattern=r"^([0-9]+(/[0-9]+)?)?$")] = ""
    """Only messages behind this place: the `next` of the previous answer."""
    limit: _Limit = 100
    body_bytes: Annotated[int, Field(ge=0, le=100_000, strict=True)] = 1_000
    """How much of each body to return, at most."""


class ListXidsRecord(QueryRecord):
    """Asks for the undecided distributed transactions of the partition, in order of begin."""

    type: Literal["list_xids"]
    after: _Count = ""
    """Only transactions behind this place: the `next` of the previous answer."""
    limit: _Limit = 1_000


class ShowConfigurationRecord(QueryRecord):
    """Asks which configuration the partition uses (R128)."""

    type: Literal["show_configuration"]


class OrderRecord(QueryRecord):
    """An operator's order to the worker of a partition that has stopped (R123).

    The worker looks for it at the end of the log, and answers once it is carried out or refused.
    Nobody answers if the partition has not stopped: who reads it in its turn, skips it.
    """

    partition: Place
    """Its number; or TOPIC/NUMBER, for a partition of a topic that is repartitioned."""
    by: MaybeName = ""
    """Who gives the order."""


class RetryPartitionRecord(OrderRecord):
    """Orders a partition that has stopped to try again."""

    type: Literal["retry_partition"]


class SkipRecord(OrderRecord):
    """Orders a stopped partition to move the record that it cannot get past to the dead topic."""

    type: Literal["skip_record"]
    at: Place
    """The record: topic/partition/offset."""


class _RollbackRecord(ControlRecord):
    """A rollback has a list of what was acked in the session (C2, C9)."""

    def command(self) -> c.Command:
        """Build the core's command."""
        fields = self.__dict__
        acked = tuple(c.Ack(**entry.__dict__) for entry in fields["acked"])
        return c.Rollback(fields["session"], acked)


_AckedEntry: Any = create_model(
    "_AckedEntry",
    __config__=ConfigDict(extra="forbid", frozen=True),
    **fields_of(c.Ack, without=("xid", "owner")),  # type: ignore[call-overload]
)
_BASES: Mapping[type[c.Command], type[ControlRecord]] = {c.Rollback: _RollbackRecord}
_REPLACED: Mapping[type[c.Command], Mapping[str, Any]] = {
    c.Rollback: {"session": Name, "acked": tuple[_AckedEntry, ...]}
}
_NOT_ON_THE_WIRE = (c.Send, c.Start, c.Sweep)
"""A send is a producer's record, and a host starts and sweeps on its own."""


def kind_of(command: type[c.Command]) -> str:
    """The `type` of a command's records: its name in lower case, with underscores."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", command.__name__).lower()


def _derive(command: type[c.Command]) -> type[ControlRecord]:
    """The model of a command."""
    model: type[ControlRecord] = create_model(
        f"{command.__name__}Record",
        __base__=_BASES.get(command, ControlRecord),
        __doc__=command.__doc__,
        type=(Literal[kind_of(command)], ...),
        **fields_of(command, **_REPLACED.get(command, {})),  # type: ignore[call-overload]
    )
    model.core = command
    return model


def type_of(model: type[ControlRecord]) -> str:
    """The `type` of a model's records."""
    kind: str = get_args(model.model_fields["type"].annotation)[0]
    return kind


ORDERS: Sequence[type[OrderRecord]] = (RetryPartitionRecord, SkipRecord)
QUERIES: Sequence[type[QueryRecord]] = (
    ListRecord, ListQueuesRecord, BrowseRecord, ListXidsRecord, ShowConfigurationRecord, *ORDERS,
)  # fmt: skip


_COMMANDS = [each for each in get_args(c.Command) if each not in _NOT_ON_THE_WIRE]


_MODELS: list[type[ControlRecord]] = [*map(_derive, _COMMANDS), TickRecord, *QUERIES]
_APPLY = kind_of(c.Apply)
MODELS: Mapping[str, type[ControlRecord]] = {type_of(model): model for model in _MODELS}
"""The model of every control record, by type."""
OPERATOR_COMMANDS: Mapping[str, type[c.Command]] = {
    kind_of(command): command
    for command in _COMMANDS
    if not {"consumer", "session", "xid"} & set(command._fields)
}
"""By type: commands that change queues for an operator, not for a consumer or a transaction. A
worker logs them."""
_ANY_MODEL: Any = Annotated[Union[tuple(MODELS.values())], Field(discriminator="type")]  # noqa: UP007
_ADAPTER: TypeAdapter[ControlRecord] = TypeAdapter(_ANY_MODEL)

# --- reading --------------------------------------------------------------------------------------


class BadControl(ProtocolError):
    """A control record that asks for a reply, but is not a valid command.

    Attributes:
        reply: the key of the reply.
    """

    def __init__(self, text: str, reply: str) -> None:
        super().__init__(text)
        self.reply = reply


def read_control(value: bytes | None) -> ControlRecord:
    """Decode the value of a control record.

    Raises:
        ProtocolError: it is not a valid command. The text names the field and what is wrong.
        BadControl: likewise, for a record that asks for a reply.
    """
    if value is None:
        raise ProtocolError("a control record needs a JSON value")
    if len(value) > APPLY_BYTES:
        raise _too_large(value, APPLY_BYTES)
    try:
        record = _ADAPTER.validate_json(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        if len(value) > MAX_BYTES and first["loc"][:1] != (_APPLY,):
            raise _too_large(value, MAX_BYTES) from None
        place = ".".join(str(part) for part in first["loc"])[:_TEXT_CHARS] or "record"
        given = repr(first["input"])[:_TEXT_CHARS]
        text = f"{place}: {first['msg'][: 5 * _TEXT_CHARS]} (given {given})"
        if reply := reply_of(value):
            raise BadControl(text, reply) from None
        raise ProtocolError(text) from None
    if len(value) > MAX_BYTES and record.type != _APPLY:
        raise _too_large(value, MAX_BYTES)
    return record


def _too_large(value: bytes, most: int) -> ProtocolError:
    return ProtocolError(
        f"the control record has {len(value)} bytes; the limit is {most}", "too_large"
    )


def reply_of(value: bytes | None) -> str:
    """The `reply` of a record, whatever else is in it; empty if it has none that is usable."""
    try:
        return _ReplyRequest.model_validate_json(value or b"").reply
    except ValidationError:
        return ""
