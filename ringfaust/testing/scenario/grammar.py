"""What a scenario file may say. See `reading` for how one is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ringfaust.core import limits
from ringfaust.core.model import AckMode, Counts
from ringfaust.core.settings import FIELD_NAMES
from ringfaust.protocol.control import MaybeName, MessageId, Name
from ringfaust.protocol.routes import is_scalar

LONGEST_MS = 1 << 40
"""Longest advance, delay and ttl: 35 years."""
_SENT_BYTES = 500_000
"""Largest message of a scenario: a worker's default takes more."""

_Whole = Annotated[int, Field(strict=True)]
_Ms = Annotated[int, Field(strict=True, ge=-LONGEST_MS, le=LONGEST_MS)]


def _scalar(value: Any) -> Any:
    if not is_scalar(value):
        raise ValueError("a property is text, true, false, null or a number of up to 64 bits")
    return value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _reason_of(entry: object) -> object:
    return {"id": entry} if isinstance(entry, str) else entry


class ExpectedLoss(_Strict):
    """An entry of `evicted`, `dead` or `refused`: an id alone, or with its reason."""

    id: str | None = None
    reason: str | None = None


_Losses = list[Annotated[ExpectedLoss, BeforeValidator(_reason_of)]]


class Expect(_Strict):
    """Effects of one step alone."""

    dispatched: dict[str, list[str]] | None = None
    acked: list[str] | None = None
    returned: list[str] | None = None
    redelivered: list[str] | None = None
    evicted: _Losses = []
    expired: list[str] = []
    dead: _Losses = []
    refused: _Losses = []


_T = TypeVar("_T", bound="SendStep | AckStep")


def _in_one(step: _T) -> _T:
    if step.session is not None and step.xid is not None:
        raise ValueError("a step is done in a session or in an xid, not in both")
    return step


class SendStep(_Strict):
    """One message for each id."""

    queue: Name | None = None
    address: Name | None = None
    ids: list[MessageId]
    priority: Annotated[int, Field(strict=True, ge=0, lt=limits.PRIORITIES)] = 4
    delay_ms: _Ms | None = None
    ttl_ms: _Ms | None = None
    group: MaybeName = ""
    properties: dict[str, Annotated[Any, AfterValidator(_scalar)]] = {}
    persistent: Annotated[bool, Field(strict=True)] = True
    bytes: Annotated[int, Field(strict=True, ge=1, le=_SENT_BYTES)] | None = None
    session: Name | None = None
    xid: Name | None = None

    @model_validator(mode="after")
    def _one_target(self) -> SendStep:
        if (self.queue is None) == (self.address is None):
            raise ValueError("a send names either a queue or an address")
        return self

    @model_validator(mode="after")
    def _one_transaction(self) -> SendStep:
        return _in_one(self)


class AttachStep(_Strict):
    """A consumer attaches."""

    consumer: Name
    queue: Name
    credit: _Whole
    selector: str = ""
    priority: Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)] = 0
    ack_mode: AckMode = AckMode.INDIVIDUAL
    session: MaybeName = ""


class CreditStep(_Strict):
    """More credit."""

    consumer: Name
    add: _Whole


class AckStep(_Strict):
    """Deliveries are accepted, named by message id."""

    consumer: Name
    ids: list[MessageId]
    session: Name | None = None
    xid: Name | None = None

    @model_validator(mode="after")
    def _one_transaction(self) -> AckStep:
        return _in_one(self)


class ReleaseStep(_Strict):
    """Deliveries are given back."""

    consumer: Name
    ids: list[MessageId]
    delay_ms: _Ms | None = None


class RejectStep(_Strict):
    """Deliveries are dead."""

    consumer: Name
    ids: list[MessageId]
    text: Annotated[str, Field(max_length=2_000)] = ""


class ConsumerStep(_Strict):
    """Detach and recover."""

    consumer: Name


class PrepareStep(_Strict):
    """Prepare: only a distributed transaction has it."""

    xid: Name


class TransactionStep(_Strict):
    """Begin, commit, rollback: of a session or of a distributed transaction."""

    session: Name | None = None
    xid: Name | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> TransactionStep:
        if (self.session is None) == (self.xid is None):
            raise ValueError("a transaction is named by either session or xid")
        return self


class ConfigureStep(BaseModel):
    """Settings change; all but queue and address are fields of that."""

    model_config = ConfigDict(extra="allow", frozen=True)

    queue: Name | None = None
    address: Name | None = None

    @model_validator(mode="after")
    def _one_target(self) -> ConfigureStep:
        if (self.queue is None) == (self.address is None):
            raise ValueError("a configure names either a queue or an address")
        return self


class CreateQueueStep(BaseModel):
    """A queue is added to an address."""

    model_config = ConfigDict(extra="allow", frozen=True)

    address: Name
    queue: Name


class PauseStep(_Strict):
    """Pause and resume."""

    queue: Name
    what: Literal["pulling", "dispatch"]


class QueueStep(_Strict):
    """Purge."""

    queue: Name


class MessageStep(_Strict):
    """Remove, cancel_scheduled, deliver_now."""

    queue: Name
    id: MessageId


class RedriveStep(_Strict):
    """Evicted or dead messages are sent again."""

    from_: Literal["evicted", "dead"] = Field(alias="from")
    ids: list[MessageId]
    queue: Name


def _a_count(name: str) -> str:
    if name not in (known := Counts().as_dict()):
        raise ValueError(f"no count {name!r}; there are {', '.join(sorted(known))}")
    return name


_Count = Annotated[str, AfterValidator(_a_count)]


class StateStep(_Strict):
    """Asserts the state."""

    queue: Name
    ready: list[str] | None = None
    delivering: dict[str, list[str]] | None = None
    scheduled: list[str] | None = None
    counts: dict[_Count, int] = {}


class CrashStep(_Strict):
    """Crash has no arguments."""


STEPS: Mapping[str, type[BaseModel]] = {
    "send": SendStep,
    "attach": AttachStep,
    "credit": CreditStep,
    "ack": AckStep,
    "release": ReleaseStep,
    "reject": RejectStep,
    "detach": ConsumerStep,
    "recover": ConsumerStep,
    "begin": TransactionStep,
    "prepare": PrepareStep,
    "commit": TransactionStep,
    "rollback": TransactionStep,
    "configure": ConfigureStep,
    "create_queue": CreateQueueStep,
    "pause": PauseStep,
    "resume": PauseStep,
    "purge": QueueStep,
    "remove": MessageStep,
    "cancel_scheduled": MessageStep,
    "deliver_now": MessageStep,
    "redrive": RedriveStep,
    "crash": CrashStep,
    "state": StateStep,
}


class AddressFields(_Strict):
    """An address, with the queues that it has from the beginning."""

    routing: Literal["multicast", "anycast"] = "multicast"
    compat: Literal["default", "artemis"] = "default"
    retroactive_count: Annotated[int, Field(ge=0, le=limits.RETAINED)] = 0
    subscriptions: dict[Name, dict[str, Any]] = {}


class Step(_Strict):
    """One step: its kind, its arguments, what it must do."""

    kind: str
    what: Any
    """A model of this file, or the milliseconds of an `advance`."""
    expect: Expect = Expect()
    line: int


class Scenario(_Strict):
    """One file."""

    id: str
    says: str
    rules: list[Annotated[str, Field(pattern=r"^[RC]\d+$")]]
    source: str = ""
    queues: dict[Name, dict[str, Any]] = {}
    addresses: dict[Name, AddressFields] = {}
    settings: dict[Name, dict[str, Any]] = {}
    steps: list[Step]

    def all_settings(self) -> dict[str, dict[str, Any]]:
        """Its settings by pattern; in scenarios consumers live until detached (R13)."""
        common = {"consumer_timeout": 0, **self.settings.get("#", {})}
        return {**self.settings, "#": common}

    def all_addresses(self) -> dict[str, dict[str, Any]]:
        """Its addresses, by name: fields, and the fields of their queues."""
        return {name: each.model_dump(exclude_unset=True) for name, each in self.addresses.items()}

    def crashes(self) -> bool:
        """Has it a crash?"""
        return any(step.kind == "crash" for step in self.steps)

    def has_xids(self) -> bool:
        """Would a crash roll something of it back (R81)?"""
        return any(getattr(step.what, "xid", None) is not None for step in self.steps)

    def needs(self) -> set[str]:
        """The capabilities beyond the plain ones that a host must have to play it."""
        tables = [*self.queues.values(), *self.settings.values()]
        tables += [f for each in self.addresses.values() for f in each.subscriptions.values()]
        fields = {name for table in tables for name in table}
        for step in self.steps:
            if step.kind == "create_queue" or (step.kind == "configure" and step.what.queue):
                fields |= set(step.what.model_extra or {})
        unknown = fields - set(FIELD_NAMES)
        return {"queue settings: " + ", ".join(sorted(unknown))} if unknown else set()
