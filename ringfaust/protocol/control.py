"""The control protocol: JSON that `kcat` can write, one command a record. See docs/protocol.md.

Each model is one command; unknown fields are refused. `reply`, if given, asks for an answer on the
replies topic under that key.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ringfaust.core import commands as c
from ringfaust.core import limits
from ringfaust.core.model import AckMode
from ringfaust.errors import ProtocolError

VERSION = 1
MAX_BYTES = 64 * 1024
"""Longest control record: settings are its largest part, and these are short."""

_TEXT_CHARS = 80
"""How much of what was given is told back."""

Name = Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARS, pattern=r"^[^\x00]+$")]
MaybeName = Annotated[str, Field(max_length=limits.NAME_CHARS, pattern=r"^[^\x00]*$")]
MessageId = Annotated[str, Field(min_length=1, max_length=limits.ID_CHARS, pattern=r"^[^\x00]+$")]
Number = Annotated[int, Field(ge=0, le=2**63 - 1, strict=True)]
Ms = Annotated[int, Field(ge=0, le=limits.TIME_MS, strict=True)]


class _Asks(BaseModel):
    reply: str = Field(default="", max_length=limits.NAME_CHARS)


class _Control(_Asks):
    model_config = ConfigDict(extra="forbid", frozen=True)

    core: ClassVar[type[c.Command]]
    """What it is to the core; their fields have the same names."""
    v: Annotated[int, Field(ge=VERSION, le=VERSION, strict=True)] = VERSION

    def command(self) -> c.Command:
        """The core's command. What only the core can judge (settings, say) is judged there."""
        return self.core(*[getattr(self, name) for name in self.core._fields])


class _OfQueue(_Control):
    queue: Name


class _OfConsumer(_OfQueue):
    consumer: Name


class _Settle(_OfConsumer):
    message: MessageId
    delivery: Number = 0


class _Joins(_Control):
    consumer: Name
    credit: Annotated[int, Field(ge=0, le=limits.CREDIT, strict=True)]
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31, strict=True)] = 0
    ack_mode: AckMode = AckMode.INDIVIDUAL
    session: MaybeName = ""
    selector: str = ""
    credit_bytes: Number = 0


class Attach(_Joins):
    """R10, R11, R15."""

    core: ClassVar[type[c.Command]] = c.Attach
    type: Literal["attach"]
    queue: Name


class Subscribe(_Joins):
    """R70."""

    core: ClassVar[type[c.Command]] = c.Subscribe
    type: Literal["subscribe"]
    address: Name
    subscription: MaybeName = ""
    client: MaybeName = ""
    shared: Annotated[bool, Field(strict=True)] = False


class Credit(_OfConsumer):
    """R10."""

    core: ClassVar[type[c.Command]] = c.Credit
    type: Literal["credit"]
    add: Number


class Heartbeat(_OfConsumer):
    """R13."""

    core: ClassVar[type[c.Command]] = c.Heartbeat
    type: Literal["heartbeat"]


class Ack(_Settle):
    """R16, R81."""

    core: ClassVar[type[c.Command]] = c.Ack
    type: Literal["ack"]
    xid: MaybeName = ""


class Release(_Settle):
    """R23."""

    core: ClassVar[type[c.Command]] = c.Release
    type: Literal["release"]
    delay_ms: Ms | None = None


class Reject(_Settle):
    """R41."""

    core: ClassVar[type[c.Command]] = c.Reject
    type: Literal["reject"]
    text: str = Field(default="", max_length=2_000)


class Detach(_OfConsumer):
    """R20."""

    core: ClassVar[type[c.Command]] = c.Detach
    type: Literal["detach"]


class Recover(_OfConsumer):
    """R20."""

    core: ClassVar[type[c.Command]] = c.Recover
    type: Literal["recover"]


class _Settled(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    queue: Name
    consumer: Name
    message: MessageId
    delivery: Number = 0


class Rollback(_Control):
    """R80; `acked` is for queues with compat: artemis (C2, C9)."""

    core: ClassVar[type[c.Command]] = c.Rollback
    type: Literal["rollback"]
    session: Name
    acked: tuple[_Settled, ...] = ()

    def command(self) -> c.Command:
        """The core's command."""
        return c.Rollback(self.session, tuple(c.Ack(**dict(each)) for each in self.acked))


class _OfXid(_Control):
    xid: Name


class Begin(_OfXid):
    """R81."""

    core: ClassVar[type[c.Command]] = c.Begin
    type: Literal["begin"]


class Prepare(_OfXid):
    """R81."""

    core: ClassVar[type[c.Command]] = c.Prepare
    type: Literal["prepare"]


class Commit(_OfXid):
    """R81."""

    core: ClassVar[type[c.Command]] = c.Commit
    type: Literal["commit"]


class RollbackXid(_OfXid):
    """R81."""

    core: ClassVar[type[c.Command]] = c.RollbackXid
    type: Literal["rollback_xid"]


class CreateQueue(_OfQueue):
    """R71, R90."""

    core: ClassVar[type[c.Command]] = c.CreateQueue
    type: Literal["create_queue"]
    settings: dict[str, Any] = {}


class Configure(_OfQueue):
    """R90."""

    core: ClassVar[type[c.Command]] = c.Configure
    type: Literal["configure"]
    settings: dict[str, Any]


class ConfigureAddress(_Control):
    """R71, R90."""

    core: ClassVar[type[c.Command]] = c.ConfigureAddress
    type: Literal["configure_address"]
    address: Name
    settings: dict[str, Any]


class DeleteQueue(_OfQueue):
    """R90."""

    core: ClassVar[type[c.Command]] = c.DeleteQueue
    type: Literal["delete_queue"]


class Pause(_OfQueue):
    """R90."""

    core: ClassVar[type[c.Command]] = c.Pause
    type: Literal["pause"]
    what: Literal["pulling", "dispatch"]


class Resume(_OfQueue):
    """R90."""

    core: ClassVar[type[c.Command]] = c.Resume
    type: Literal["resume"]
    what: Literal["pulling", "dispatch"]


class Purge(_OfQueue):
    """R90."""

    core: ClassVar[type[c.Command]] = c.Purge
    type: Literal["purge"]


class Remove(_OfQueue):
    """R90."""

    core: ClassVar[type[c.Command]] = c.Remove
    type: Literal["remove"]
    message: MessageId


class Move(_OfQueue):
    """R90."""

    core: ClassVar[type[c.Command]] = c.Move
    type: Literal["move"]
    message: MessageId
    to: Name


class CancelScheduled(_OfQueue):
    """R34."""

    core: ClassVar[type[c.Command]] = c.CancelScheduled
    type: Literal["cancel_scheduled"]
    message: MessageId


class DeliverNow(_OfQueue):
    """R34."""

    core: ClassVar[type[c.Command]] = c.DeliverNow
    type: Literal["deliver_now"]
    message: MessageId


class Tick(_Control):
    """Time moves to `now_ms` and what became due is done. Only where the log is the clock."""

    core: ClassVar[type[c.Command]] = c.Sweep
    type: Literal["tick"]
    now_ms: Ms


class List(_OfQueue):
    """Asks for what a queue holds; the answer is the reply. Changes nothing (R34)."""

    type: Literal["list"]
    limit: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 1_000


Control = (
    Attach | Subscribe | Credit | Heartbeat | Ack | Release | Reject | Detach | Recover | Rollback
    | Begin | Prepare | Commit | RollbackXid | CreateQueue | Configure | ConfigureAddress
    | DeleteQueue | Pause | Resume | Purge | Remove | Move | CancelScheduled | DeliverNow | Tick
    | List
)  # fmt: skip

_ADAPTER: TypeAdapter[Control] = TypeAdapter(Annotated[Control, Field(discriminator="type")])


class BadControl(ProtocolError):
    """A control record asks for a reply, but is no command; the asker can be told so.

    Attributes:
        reply: the key of the reply.
    """

    def __init__(self, text: str, reply: str) -> None:
        super().__init__(text)
        self.reply = reply


def read_control(value: bytes | None) -> Control:
    """The command that a control record holds.

    Raises:
        ProtocolError: it does not follow the protocol; the text names the field and the remedy.
        BadControl: the same of a record that asks for a reply.
    """
    if value is None:
        raise ProtocolError("a control record needs a JSON value")
    if len(value) > MAX_BYTES:
        raise ProtocolError(
            f"{len(value)} bytes; a control record has at most {MAX_BYTES}", "too_large"
        )
    try:
        return _ADAPTER.validate_json(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:_TEXT_CHARS] or "record"
        given = repr(first["input"])[:_TEXT_CHARS]
        text = f"{place}: {first['msg'][: 5 * _TEXT_CHARS]} (given {given})"
        if reply := _reply_of(value):
            raise BadControl(text, reply) from None
        raise ProtocolError(text) from None


def _reply_of(value: bytes) -> str:
    """The `reply` of a record that is no command otherwise; empty: none that could be used."""
    try:
        return _Asks.model_validate_json(value).reply
    except ValidationError:
        return ""
