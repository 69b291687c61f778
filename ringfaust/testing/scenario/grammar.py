"""The grammar of scenario files as models. `reading` reads the files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from ringfaust.core import commands as c
from ringfaust.core import limits
from ringfaust.core.commands import Command
from ringfaust.core.model import AckMode, Counts
from ringfaust.core.settings import FIELD_NAMES, stored_names
from ringfaust.protocol.control import OPERATOR_COMMANDS, MaybeName, MessageId, Name, fields_of
from ringfaust.protocol.routes import is_scalar

OWNER = "coordinator"
"""Who takes part in distributed transactions, unless a step names another."""

LONGEST_MS = 1 << 40
"""The longest advance, delay and ttl in milliseconds: 35 years."""
_SENT_BYTES = 500_000
"""The size of the largest message; a worker's default limit is higher."""

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
    """The expected effects of one step."""

    dispatched: dict[str, list[str]] | None = None
    acked: list[str] | None = None
    returned: list[str] | None = None
    redelivered: list[str] | None = None
    evicted: _Losses = []
    expired: list[str] = []
    dead: _Losses = []
    refused: _Losses = []


_T = TypeVar("_T", bound="SendStep | AckStep")


def _refuse_both(step: _T) -> _T:
    if step.session is not None and step.xid is not None:
        raise ValueError("a step belongs to a session or to an xid, not to both")
    return step


class SendStep(_Strict):
    """Sends one message for each id."""

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
    owner: MaybeName = OWNER

    @model_validator(mode="after")
    def _one_target(self) -> SendStep:
        if (self.queue is None) == (self.address is None):
            raise ValueError("a send names either a queue or an address")
        return self

    @model_validator(mode="after")
    def _one_transaction(self) -> SendStep:
        return _refuse_both(self)


class AttachStep(_Strict):
    """Attaches a consumer."""

    consumer: Name
    queue: Name
    credit: _Whole
    selector: str = ""
    priority: Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)] = 0
    ack_mode: AckMode = AckMode.INDIVIDUAL
    session: MaybeName = ""


class CreditStep(_Strict):
    """Grants a consumer more credit."""

    consumer: Name
    add: _Whole


class AckStep(_Strict):
    """Acks deliveries, named by message id."""

    consumer: Name
    ids: list[MessageId]
    session: Name | None = None
    xid: Name | None = None
    owner: MaybeName = OWNER

    @model_validator(mode="after")
    def _one_transaction(self) -> AckStep:
        return _refuse_both(self)


class ReleaseStep(_Strict):
    """Releases deliveries."""

    consumer: Name
    ids: list[MessageId]
    delay_ms: _Ms | None = None


class RejectStep(_Strict):
    """Rejects deliveries."""

    consumer: Name
    ids: list[MessageId]
    text: Annotated[str, Field(max_length=2_000)] = ""


class ConsumerStep(_Strict):
    """Detaches a consumer, or recovers its deliveries."""

    consumer: Name


class PrepareStep(_Strict):
    """Prepares a distributed transaction."""

    xid: Name


class TransactionStep(_Strict):
    """Commits or rolls back a session or a distributed transaction."""

    session: Name | None = None
    xid: Name | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> TransactionStep:
        if (self.session is None) == (self.xid is None):
            raise ValueError("a transaction is named by either session or xid")
        return self


class BeginStep(TransactionStep):
    """Begins a session's or a distributed transaction."""

    owner: MaybeName = OWNER
    timeout_ms: Annotated[int, Field(strict=True)] = c.Begin("").timeout_ms


class ConfigureStep(BaseModel):
    """Changes settings: all fields but `queue` and `address` are settings of the named one."""

    model_config = ConfigDict(extra="allow", frozen=True)

    queue: Name | None = None
    address: Name | None = None

    @model_validator(mode="after")
    def _one_target(self) -> ConfigureStep:
        if (self.queue is None) == (self.address is None):
            raise ValueError("a configure names either a queue or an address")
        return self


class CreateQueueStep(BaseModel):
    """Adds a queue to an address; further fields are its settings."""

    model_config = ConfigDict(extra="allow", frozen=True)

    address: Name
    queue: Name


_Fields = Annotated[dict[str, Any], AfterValidator(stored_names)]


class AddressFields(_Strict):
    """An address, with the queues that it has at the start."""

    routing: Literal["multicast", "anycast"] = "multicast"
    compat: Literal["default", "artemis"] = "default"
    retroactive_count: Annotated[int, Field(ge=0, le=limits.RETAINED)] = 0
    subscriptions: dict[Name, _Fields] = {}


class Declarations(_Strict):
    """What `queues.yaml` would declare."""

    queues: dict[Name, _Fields] = {}
    addresses: dict[Name, AddressFields] = {}
    settings: dict[Name, _Fields] = {}

    def all_settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings by pattern. Consumers live until they are detached (R13)."""
        common = {"consumer_timeout": 0, **self.settings.get("#", {})}
        return {**self.settings, "#": common}

    def all_addresses(self) -> dict[str, dict[str, Any]]:
        """Return the fields of each address by name, including those of its queues."""
        return {name: each.model_dump(exclude_unset=True) for name, each in self.addresses.items()}

    def document(self) -> dict[str, Any]:
        """Return it as the configuration of an `apply` has it (R128)."""
        return {
            "routes": [],
            "queues": self.queues,
            "addresses": self.all_addresses(),
            "settings": self.all_settings(),
        }


class ApplyStep(Declarations):
    """Applies another configuration. A file counts the revisions from 1."""

    revision: Annotated[int, Field(strict=True, ge=1)]


class RedriveStep(_Strict):
    """Redrives evicted or dead messages."""

    from_: Literal["evicted", "dead"] = Field(alias="from")
    ids: list[MessageId]
    queue: Name


def _a_count(name: str) -> str:
    if name not in (known := Counts().as_dict()):
        raise ValueError(f"no count {name!r}; there are {', '.join(sorted(known))}")
    return name


_Count = Annotated[str, AfterValidator(_a_count)]


class StateStep(_Strict):
    """Asserts the state of a queue."""

    queue: Name
    ready: list[str] | None = None
    delivering: dict[str, list[str]] | None = None
    scheduled: list[str] | None = None
    counts: dict[_Count, _Whole] = {}


class AdvanceStep(_Strict):
    """Moves the clock, then sweeps."""

    ms: Annotated[int, Field(strict=True, ge=0)]
    heard: Annotated[bool, Field(strict=True)] = True
    """False: what clients say meanwhile is not known yet, so no silence counts (R110)."""


class CrashStep(_Strict):
    """Crashes the host; has no arguments."""


def _operator_step(command: type[Command]) -> type[BaseModel]:
    """The model of a step that is a command of an operator. Its message is called `id`."""
    fields = fields_of(command)
    if "message" in fields:
        fields["message"] = (MessageId, Field(alias="id"))
    model: type[BaseModel] = create_model(
        f"{command.__name__}Step",
        __base__=_Strict,
        __doc__=command.__doc__,
        **fields,  # type: ignore[call-overload]
    )
    return model


STEPS: Mapping[str, type[BaseModel]] = {
    **{
        kind: _operator_step(command)
        for kind, command in OPERATOR_COMMANDS.items()
        if "settings" not in command._fields  # the fields of these steps are settings
    },
    "send": SendStep,
    "attach": AttachStep,
    "credit": CreditStep,
    "ack": AckStep,
    "release": ReleaseStep,
    "reject": RejectStep,
    "detach": ConsumerStep,
    "recover": ConsumerStep,
    "begin": BeginStep,
    "prepare": PrepareStep,
    "commit": TransactionStep,
    "rollback": TransactionStep,
    "configure": ConfigureStep,
    "create_queue": CreateQueueStep,
    "apply": ApplyStep,
    "redrive": RedriveStep,
    "advance": AdvanceStep,
    "crash": CrashStep,
    "state": StateStep,
}


class ScenarioStep(_Strict):
    """One step: its kind, its arguments, and what it is expected to do."""

    kind: str
    what: Any
    """A model of this module."""
    expect: Expect = Expect()
    line: int


class Scenario(Declarations):
    """One scenario file."""

    id: str
    says: str
    rules: list[Annotated[str, Field(pattern=r"^[RC]\d+$")]]
    source: str = ""
    steps: list[ScenarioStep]

    def crashes(self) -> bool:
        """Whether the scenario has a crash."""
        return any(step.kind == "crash" for step in self.steps)

    def has_xids(self) -> bool:
        """Whether the scenario has distributed transactions, which a crash may roll back (R81)."""
        return any(getattr(step.what, "xid", None) is not None for step in self.steps)

    def needs(self) -> set[str]:
        """Return the settings that no host knows, as one text; nothing if all are known."""
        tables = [*self.queues.values(), *self.settings.values()]
        tables += [f for each in self.addresses.values() for f in each.subscriptions.values()]
        fields = {name for table in tables for name in table}
        for step in self.steps:
            if step.kind == "create_queue" or (step.kind == "configure" and step.what.queue):
                fields |= set(stored_names(step.what.model_extra or {}))
        unknown = fields - set(FIELD_NAMES)
        return {"queue settings: " + ", ".join(sorted(unknown))} if unknown else set()
