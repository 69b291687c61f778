"""What a scenario file may say. See `reading` for how one is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ringfaust.core import limits
from ringfaust.core.model import FIELD_NAMES, AckMode, Counts


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _reason_of(entry: object) -> object:
    return {"id": entry} if isinstance(entry, str) else entry


class Lost(_Strict):
    """An entry of `evicted`, `dead` or `refused`: an id alone, or with its reason."""

    id: str | None = None
    reason: str | None = None


_Losses = list[Annotated[Lost, BeforeValidator(_reason_of)]]


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


class Send(_Strict):
    """One message for each id."""

    queue: str | None = None
    address: str | None = None
    ids: list[str]
    priority: Annotated[int, Field(ge=0, lt=limits.PRIORITIES)] = 4
    delay_ms: int | None = None
    ttl_ms: int | None = None
    group: str = ""
    properties: dict[str, Any] = {}
    persistent: bool = True
    bytes: int | None = None
    session: str | None = None
    xid: str | None = None

    @model_validator(mode="after")
    def _one_target(self) -> Send:
        if (self.queue is None) == (self.address is None):
            raise ValueError("a send names either a queue or an address")
        return self


class Attach(_Strict):
    """A consumer attaches."""

    consumer: str
    queue: str
    credit: int
    selector: str | None = None
    priority: int = 0
    ack_mode: AckMode = AckMode.INDIVIDUAL
    session: str = ""


class Credit(_Strict):
    """More credit."""

    consumer: str
    add: int


class Ack(_Strict):
    """Deliveries are accepted, named by message id."""

    consumer: str
    ids: list[str]
    session: str | None = None
    xid: str | None = None


class Release(_Strict):
    """Deliveries are given back."""

    consumer: str
    ids: list[str]
    delay_ms: int | None = None


class Reject(_Strict):
    """Deliveries are dead."""

    consumer: str
    ids: list[str]
    text: str = ""


class OfConsumer(_Strict):
    """Detach and recover."""

    consumer: str


class Prepare(_Strict):
    """Prepare: only a distributed transaction has it."""

    xid: str


class Transaction(_Strict):
    """Begin, commit, rollback: of a session or of a distributed transaction."""

    session: str | None = None
    xid: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Transaction:
        if (self.session is None) == (self.xid is None):
            raise ValueError("a transaction is named by either session or xid")
        return self


class Configure(BaseModel):
    """Settings change; all but queue and address are fields of the queue."""

    model_config = ConfigDict(extra="allow", frozen=True)

    queue: str | None = None
    address: str | None = None


class CreateQueue(BaseModel):
    """A queue is added to an address."""

    model_config = ConfigDict(extra="allow", frozen=True)

    address: str
    queue: str


class Pause(_Strict):
    """Pause and resume."""

    queue: str
    what: Literal["pulling", "dispatch"]


class OfQueue(_Strict):
    """Purge."""

    queue: str


class OfMessage(_Strict):
    """Remove, cancel_scheduled, deliver_now."""

    queue: str
    id: str


class Redrive(_Strict):
    """Evicted or dead messages are sent again."""

    from_: Literal["evicted", "dead"] = Field(alias="from")
    ids: list[str]
    queue: str


def _a_count(name: str) -> str:
    if name not in (known := Counts().as_dict()):
        raise ValueError(f"no count {name!r}; there are {', '.join(sorted(known))}")
    return name


_Count = Annotated[str, AfterValidator(_a_count)]


class State(_Strict):
    """Asserts the state."""

    queue: str
    ready: list[str] | None = None
    delivering: dict[str, list[str]] | None = None
    scheduled: list[str] | None = None
    counts: dict[_Count, int] = {}


class Nothing(_Strict):
    """Crash has no arguments."""


STEPS: Mapping[str, type[BaseModel]] = {
    "send": Send,
    "attach": Attach,
    "credit": Credit,
    "ack": Ack,
    "release": Release,
    "reject": Reject,
    "detach": OfConsumer,
    "recover": OfConsumer,
    "begin": Transaction,
    "prepare": Prepare,
    "commit": Transaction,
    "rollback": Transaction,
    "configure": Configure,
    "create_queue": CreateQueue,
    "pause": Pause,
    "resume": Pause,
    "purge": OfQueue,
    "remove": OfMessage,
    "cancel_scheduled": OfMessage,
    "deliver_now": OfMessage,
    "redrive": Redrive,
    "crash": Nothing,
    "state": State,
}


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
    queues: dict[str, dict[str, Any]] = {}
    addresses: dict[str, Any] = {}
    settings: dict[str, dict[str, Any]] = {}
    steps: list[Step]

    def all_settings(self) -> dict[str, dict[str, Any]]:
        """Its settings by pattern; in scenarios consumers live until detached (R13)."""
        common = {"consumer_timeout": 0, **self.settings.get("#", {})}
        return {**self.settings, "#": common}

    def crashes(self) -> bool:
        """Has it a crash?"""
        return any(step.kind == "crash" for step in self.steps)

    def needs(self) -> set[str]:
        """The capabilities beyond the plain ones that a host must have to play it."""
        found = set()
        fields = {
            name for table in (self.queues, self.settings) for f in table.values() for name in f
        }
        for step in self.steps:
            what = step.what
            if self.addresses or getattr(what, "address", None) is not None:
                found.add("addresses")
            if step.kind == "redrive":
                found.add("redrive")
            if getattr(what, "xid", None) is not None:
                found.add("distributed transactions")
            if getattr(what, "selector", None) is not None:
                found.add("selectors")
            if step.kind == "send" and not what.persistent:
                found.add("delivery modes")
            if step.kind == "configure" and what.queue:
                fields |= set(what.model_extra or {})
        if unknown := fields - set(FIELD_NAMES):
            found.add("queue settings: " + ", ".join(sorted(unknown)))
        return found
