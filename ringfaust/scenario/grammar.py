"""What a scenario file may say; a file that is not valid is named with its line and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ringfaust.core.model import FIELD_NAMES, AckMode
from ringfaust.errors import RingfaustError


class BadScenario(RingfaustError):
    """A scenario file is not valid. The text has file, line and reason."""


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
    priority: int = 4
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


class Transaction(_Strict):
    """Begin, prepare, commit, rollback: of a session or of a distributed transaction."""

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


class State(_Strict):
    """Asserts the state."""

    queue: str
    ready: list[str] | None = None
    delivering: dict[str, list[str]] | None = None
    scheduled: list[str] | None = None
    counts: dict[str, int] = {}


class Nothing(_Strict):
    """Crash has no arguments."""


_STEPS: Mapping[str, type[BaseModel]] = {
    "send": Send,
    "attach": Attach,
    "credit": Credit,
    "ack": Ack,
    "release": Release,
    "reject": Reject,
    "detach": OfConsumer,
    "recover": OfConsumer,
    "begin": Transaction,
    "prepare": Transaction,
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

    def needs(self) -> set[str]:
        """The capabilities beyond the plain ones that a host must have to play it."""
        found = set()
        fields = {
            name for table in (self.queues, self.settings) for f in table.values() for name in f
        }
        if self.addresses:
            found.add("addresses")
        for step in self.steps:
            what = step.what
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


def load(path: Path) -> Scenario:
    """Read one file.

    Raises:
        BadScenario: it cannot be read, is no YAML or not of the grammar.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        raw = yaml.safe_load(text)
    except OSError as error:
        raise BadScenario(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{mark.line + 1}: " if mark else " "
        raise BadScenario(f"{path}:{line}not YAML: {getattr(error, 'problem', error)}") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("steps"), list):
        raise BadScenario(f"{path}:1: a scenario is a map with a list of steps")
    lines = _step_lines(tree)
    steps = [_step(path, entry, line) for entry, line in zip(raw["steps"], lines, strict=True)]
    try:
        scenario = Scenario.model_validate({**raw, "steps": steps})
    except ValidationError as error:
        raise BadScenario(f"{path}:1: {_first(error)}") from None
    if scenario.id != path.stem:
        raise BadScenario(f"{path}:1: the id is {scenario.id!r}; it must be the file's name")
    return scenario


def _step_lines(tree: Any) -> list[int]:
    for key, value in tree.value:
        if key.value == "steps":
            return [node.start_mark.line + 1 for node in value.value]
    return []


def _step(path: Path, entry: Any, line: int) -> Step:
    where = f"{path}:{line}"
    if not isinstance(entry, dict):
        raise BadScenario(f"{where}: a step is a map of one key, and perhaps expect")
    kinds = [name for name in entry if name != "expect"]
    if len(kinds) != 1:
        raise BadScenario(f"{where}: a step has one key beside expect, not {kinds}")
    kind = str(kinds[0])
    try:
        expect = Expect.model_validate(entry.get("expect", {}))
        if kind == "advance":
            what = entry[kind]
            if type(what) is not int or what < 0:
                raise BadScenario(
                    f"{where}: advance takes whole milliseconds, 0 or more, not {what!r}"
                )
        elif kind in _STEPS:
            what = _STEPS[kind].model_validate(entry[kind])
        else:
            known = ", ".join([*_STEPS, "advance"])
            raise BadScenario(f"{where}: no step {kind!r}; there are {known}")
    except ValidationError as error:
        raise BadScenario(f"{where}: {kind}: {_first(error)}") from None
    return Step(kind=kind, what=what, expect=expect, line=line)


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]
