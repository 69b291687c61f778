"""The settings of queues and addresses, and the checks of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

from ringfaust.core import limits
from ringfaust.core.selector import compile_selector
from ringfaust.errors import BadSelector, BadSetting


class _Rule(NamedTuple):
    """Which values a setting may have."""

    kind: type
    holds: Callable[[Any], bool]
    advice: str


def _setting(default: object, holds: Callable[[Any], bool], advice: str) -> Any:
    """A field with the type of its default."""
    return field(default=default, metadata={"rule": _Rule(type(default), holds, advice)})


def _whole(default: int, low: int, advice: str) -> Any:
    return _setting(default, lambda value: value >= low, advice)


def _limit(default: int) -> Any:
    return _whole(default, -1, "a whole number, or -1 for no limit")


def _up_to(default: int, most: int, zero: str = "") -> Any:
    return _setting(default, lambda n: 0 <= n <= most, f"from 0{zero} to {most}")


def _one_of(default: str, *others: str) -> Any:
    names = (default, *others)
    return _setting(default, lambda value: value in names, "one of " + ", ".join(names))


def _ms(default: int, low: int, advice: str) -> Any:
    return _setting(
        default, lambda value: low <= value <= limits.TIME_MS, f"a whole number of ms, {advice}"
    )


def _switch(default: bool) -> Any:
    return _setting(default, lambda value: True, "true or false")


def _is_selector(text: str) -> bool:
    try:
        compile_selector(text)
    except BadSelector:
        return not text
    return True


_RING_SIZE = "1 or more, or -1 for no limit (0 or less only beside compat: artemis)"


STORED_NAMES: Mapping[str, str] = {
    "redelivery_delay_ms": "redelivery_delay",
    "redelivery_delay_max_ms": "redelivery_delay_max",
    "consumer_timeout_ms": "consumer_timeout",
    "window_lease_ms": "window_lease",
    "dedup_window_ms": "dedup_window",
}
"""Names with a unit, and the names in rows, events and answers. Configuration may use either."""
_WRITTEN = {stored: written for written, stored in STORED_NAMES.items()}


def stored_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings under the names that rows have.

    A name whose other form is given, too, stays as it is, so that the check refuses it.
    """
    renamed = {name: stored for name, stored in STORED_NAMES.items() if stored not in given}
    return {renamed.get(name, name): value for name, value in given.items()}


def written_name(name: str) -> str:
    """Return the name of a setting for configuration and display: with its unit."""
    return _WRITTEN.get(name, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """The settings of a queue. Times are in ms. Each field names its rule of the contract."""

    ring_size: int = _setting(-1, lambda n: True, _RING_SIZE)
    """N: how many messages may be ready; -1: no limit (R1)."""
    compat: str = _one_of("default", "artemis")
    """Which rules apply where they differ: default or artemis (section 13)."""
    evict: str = _one_of("oldest", "head", "lowest_priority")
    """Which message leaves a full ring: oldest, head, lowest_priority (R3); Artemis: head (C1)."""
    shrink: str = _one_of("lazy", "eager")
    """When N is lowered: lazy waits for sends, eager evicts at once (R5)."""
    evicted_payload: str = _one_of("full", "reference", "none")
    """What an evicted record carries: full, reference, none (R6)."""
    scheduled_when_full: str = _one_of("drop", "displace")
    """When a due message finds the ring full: drop it, or displace the oldest (R31)."""
    max_attempts: int = _setting(10, lambda n: n == -1 or n >= 1, "1 or more, or -1 for no limit")
    """How many deliveries a message gets before it goes to the dead topic; -1: no limit (R40)."""
    redelivery_delay: int = _ms(0, 0, "0 for none")
    """Delay before a released message is ready again (R40)."""
    redelivery_multiplier: float = _setting(1.0, lambda x: 1.0 <= x <= 1000.0, "from 1.0 to 1000.0")
    """The factor by which the delay grows with each attempt (R40)."""
    redelivery_jitter: float = _setting(
        0.0, lambda x: 0.0 <= x <= 1.0, "from 0.0 to 1.0, a share of the delay"
    )
    """The share of the delay by which it varies, derived from the message id (R40)."""
    redelivery_delay_max: int = _ms(-1, -1, "or -1 for no cap")
    """The longest delay; -1: no limit (R40)."""
    max_active_consumers: int = _setting(
        -1, lambda n: n == -1 or n >= 1, "1 or more, or -1 for any number"
    )
    """How many consumers may be active; -1: any number, 1: exclusive (R11)."""
    max_backup_consumers: int = _whole(0, 0, "a whole number, 0 or more")
    """How many backup consumers may wait to take over (R11)."""
    consumer_timeout: int = _ms(30_000, 0, "0 for never")
    """A consumer that is silent for this long is detached; 0: never (R13)."""
    batch: int = _whole(1, 1, "a whole number, 1 or more")
    """Deliveries in a row to one consumer before round robin goes to the next (R11)."""
    max_messages: int = _limit(-1)
    """How many messages the queue may hold in total; -1: no limit (R60)."""
    max_bytes: int = _limit(-1)
    """How many bytes they may have in total; -1: no limit (R60)."""
    max_message_bytes: int = _limit(-1)
    """The largest message; a larger one goes to the dead topic; -1: no limit (R60)."""
    when_full: str = _one_of(
        "drop_oldest", "drop_lowest_priority", "reject_newest", "drop_newest", "block"
    )
    """What happens at a limit: which message leaves, or `block` to stop pulling (R60)."""
    max_redrives: int = _limit(5)
    """How often a message may be redriven; -1: no limit (R43)."""
    selector: str = _setting("", _is_selector, "a message selector, or empty for all messages")
    """Which messages of its address the queue receives; empty: all (R70, R71)."""
    shared: bool = _switch(False)
    """Whether a subscription may have several consumers at a time (R70)."""
    durable: bool = _switch(True)
    """False: the queue is deleted when its last consumer leaves (R70)."""
    max_groups: int = _up_to(1_000, limits.GROUPS)
    """How many message groups without a message keep their consumer (R116)."""
    window: int = _up_to(0, limits.CREDIT, " (off)")
    """How many unsettled messages are dispatched with no consumer attached; 0: off (R12)."""
    window_lease: int = _ms(300_000, 0, "0 for never")
    """A delivery of the window returns if it is not settled for this long; 0: never (R12)."""
    dedup_window: int = _ms(0, 0, "0 for off")
    """A message is refused if its id was sent within this time before; 0: off (R119)."""

    def set_fields(self) -> Mapping[str, object]:
        """The fields that differ from the defaults."""
        return _set_fields(self)

    def with_fields(self, given: Mapping[str, object]) -> QueueSpec:
        """Return a copy with some fields changed.

        Raises:
            BadSetting: a field is unknown, of the wrong type or out of range (R90, R103).
        """
        spec = replace(self, **_all_checked(given, _RULES, "queue"))
        if spec.compat == "artemis":  # C1, C10
            ring_size = spec.ring_size if spec.ring_size >= -1 else 0
            return replace(spec, evict="head", ring_size=ring_size)
        if spec.ring_size < -1 or spec.ring_size == 0:
            raise BadSetting("ring_size", spec.ring_size, f"must be {_RING_SIZE}")
        return spec


_SPECS_KNOWN = 1_000
"""Many queues share the few settings that the configuration gives to patterns."""


@lru_cache(_SPECS_KNOWN)
def _set_fields(spec: QueueSpec) -> Mapping[str, object]:
    found = ((f.name, getattr(spec, f.name), f.default) for f in fields(spec))
    return {name: value for name, value, default in found if value != default}


_RULES: dict[str, _Rule] = {f.name: f.metadata["rule"] for f in fields(QueueSpec)}
FIELD_NAMES = tuple(_RULES)
"""The settings of a queue."""
WRITTEN_NAMES = tuple(map(written_name, FIELD_NAMES))
"""The same with their units, for configuration and display."""


def allowed_values(name: str) -> str:
    """Return which values a setting of a queue may have, in words."""
    return _RULES[name].advice


def _all_checked(
    given: Mapping[str, object], rules: Mapping[str, _Rule], what: str
) -> dict[str, Any]:
    """Check all values. `what`: queue or address, for the error text."""
    for name, value in given.items():
        if (other := STORED_NAMES.get(name)) in given:
            raise BadSetting(name, value, f"is also given as {other}: remove one of them")
        if name not in rules:
            known = ", ".join(map(written_name, rules))
            raise BadSetting(name, value, f"no such {what} setting; known: {known}")
    return {name: _checked(name, value, rules[name]) for name, value in given.items()}


def _checked(name: str, value: object, rule: _Rule) -> Any:
    kind, holds, advice = rule
    if type(value) is int and abs(value) > limits.WHOLE:  # even a float cannot hold every number
        raise BadSetting(name, value, f"must be {advice}, of at most 64 bits")
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or not holds(value):
        raise BadSetting(name, value, f"must be {advice}")
    return value


# --- settings of an address ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSpec:
    """The settings of an address."""

    routing: str = _one_of("multicast", "anycast")
    """multicast: each of its queues gets a copy; anycast: it has one queue (R70)."""
    compat: str = _one_of("default", "artemis")
    """Which rules apply to retained messages: default or artemis (C11)."""
    retroactive_count: int = _up_to(0, limits.RETAINED, " (off)")
    """How many messages it retains for queues created later; 0: off (R71)."""

    def with_fields(self, given: Mapping[str, object]) -> AddressSpec:
        """Return a copy with some fields changed.

        Raises:
            BadSetting: a field is unknown, of the wrong type or out of range (R90, R103).
        """
        return replace(self, **_all_checked(given, _ADDRESS_RULES, "address"))


_ADDRESS_RULES: dict[str, _Rule] = {f.name: f.metadata["rule"] for f in fields(AddressSpec)}
