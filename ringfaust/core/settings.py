"""The settings of queues and addresses, and the checks of their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from ringfaust.core import limits
from ringfaust.core.selector import compile_selector
from ringfaust.errors import BadSelector, BadSetting


def _whole(low: int, advice: str) -> tuple[type, Any, str]:
    return (int, lambda value: value >= low, advice)


def _one_of(*names: str) -> tuple[type, Any, str]:
    return (str, lambda value: value in names, "one of " + ", ".join(names))


def _ms(low: int, advice: str) -> tuple[type, Any, str]:
    return (int, lambda value: low <= value <= limits.TIME_MS, f"a whole number of ms, {advice}")


def _is_selector(text: str) -> bool:
    try:
        compile_selector(text)
    except BadSelector:
        return not text
    return True


_RING_SIZE = "1 or more, or -1 for no limit (0 or less only beside compat: artemis)"
_COUNT = "a whole number, 0 or more"
_LIMIT = _whole(-1, "a whole number, or -1 for no limit")
_BOOL: tuple[type, Any, str] = (bool, lambda value: True, "true or false")
_RULES: dict[str, tuple[type, Any, str]] = {
    "ring_size": (int, lambda n: True, _RING_SIZE),
    "compat": _one_of("default", "artemis"),
    "evict": _one_of("oldest", "head", "lowest_priority"),
    "shrink": _one_of("lazy", "eager"),
    "evicted_payload": _one_of("full", "reference", "none"),
    "scheduled_when_full": _one_of("drop", "displace"),
    "max_attempts": (int, lambda n: n == -1 or n >= 1, "1 or more, or -1 for no limit"),
    "redelivery_delay": _ms(0, "0 for none"),
    "redelivery_multiplier": (float, lambda x: 1.0 <= x <= 1000.0, "from 1.0 to 1000.0"),
    "redelivery_jitter": (
        float,
        lambda x: 0.0 <= x <= 1.0,
        "from 0.0 to 1.0, a share of the delay",
    ),
    "redelivery_delay_max": _ms(-1, "or -1 for no cap"),
    "max_active_consumers": (int, lambda n: n == -1 or n >= 1, "1 or more, or -1 for any number"),
    "max_backup_consumers": _whole(0, _COUNT),
    "consumer_timeout": _ms(0, "0 for never"),
    "batch": _whole(1, "a whole number, 1 or more"),
    "max_messages": _LIMIT,
    "max_bytes": _LIMIT,
    "max_message_bytes": _LIMIT,
    "when_full": _one_of(
        "drop_oldest", "drop_lowest_priority", "reject_newest", "drop_newest", "block"
    ),
    "max_redrives": _LIMIT,
    "selector": (str, _is_selector, "a message selector, or empty for all messages"),
    "shared": _BOOL,
    "durable": _BOOL,
    "max_groups": (int, lambda n: 0 <= n <= limits.GROUPS, f"from 0 to {limits.GROUPS}"),
    "window": (int, lambda n: 0 <= n <= limits.CREDIT, f"from 0 (off) to {limits.CREDIT}"),
    "window_lease": _ms(0, "0 for never"),
    "dedup_window": _ms(0, "0 for off"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """The settings of a queue. Times are in ms. Each field names its rule of the contract."""

    ring_size: int = -1
    """N: how many messages may be ready; -1: no limit (R1)."""
    compat: str = "default"
    """Which rules apply where they differ: default or artemis (section 13)."""
    evict: str = "oldest"
    """Which message leaves a full ring: oldest, head, lowest_priority (R3); Artemis: head (C1)."""
    shrink: str = "lazy"
    """When N is lowered: lazy waits for sends, eager evicts at once (R5)."""
    evicted_payload: str = "full"
    """What an evicted record carries: full, reference, none (R6)."""
    scheduled_when_full: str = "drop"
    """When a due message finds the ring full: drop it, or displace the oldest (R31)."""
    max_attempts: int = 10
    """How many deliveries a message gets before it goes to the dead topic; -1: no limit (R40)."""
    redelivery_delay: int = 0
    """Delay before a released message is ready again (R40)."""
    redelivery_multiplier: float = 1.0
    """The factor by which the delay grows with each attempt (R40)."""
    redelivery_jitter: float = 0.0
    """The share of the delay by which it varies, derived from the message id (R40)."""
    redelivery_delay_max: int = -1
    """The longest delay; -1: no limit (R40)."""
    max_active_consumers: int = -1
    """How many consumers may be active; -1: any number, 1: exclusive (R11)."""
    max_backup_consumers: int = 0
    """How many backup consumers may wait to take over (R11)."""
    consumer_timeout: int = 30_000
    """A consumer that is silent for this long is detached; 0: never (R13)."""
    batch: int = 1
    """Deliveries in a row to one consumer before round robin goes to the next (R11)."""
    max_messages: int = -1
    """How many messages the queue may hold in total; -1: no limit (R60)."""
    max_bytes: int = -1
    """How many bytes they may have in total; -1: no limit (R60)."""
    max_message_bytes: int = -1
    """The largest message; a larger one goes to the dead topic; -1: no limit (R60)."""
    when_full: str = "drop_oldest"
    """What happens at a limit: which message leaves, or `block` to stop pulling (R60)."""
    max_redrives: int = 5
    """How often a message may be redriven; -1: no limit (R43)."""
    selector: str = ""
    """Which messages of its address the queue receives; empty: all (R70, R71)."""
    shared: bool = False
    """Whether a subscription may have several consumers at a time (R70)."""
    durable: bool = True
    """False: the queue is deleted when its last consumer leaves (R70)."""
    max_groups: int = 1_000
    """How many message groups without a message keep their consumer (R116)."""
    window: int = 0
    """How many unsettled messages are dispatched with no consumer attached; 0: off (R12)."""
    window_lease: int = 300_000
    """A delivery of the window returns if it is not settled for this long; 0: never (R12)."""
    dedup_window: int = 0
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


FIELD_NAMES = tuple(f.name for f in fields(QueueSpec))
"""The settings of a queue."""


def allowed_values(name: str) -> str:
    """Return which values a setting of a queue may have, in words."""
    return _RULES[name][2]


def _all_checked(
    given: Mapping[str, object], rules: Mapping[str, tuple[type, Any, str]], what: str
) -> dict[str, Any]:
    """Check all values. `what`: queue or address, for the error text."""
    for name, value in given.items():
        if name not in rules:
            raise BadSetting(name, value, f"no such {what} setting; known: {', '.join(rules)}")
    return {name: _checked(name, value, rules[name]) for name, value in given.items()}


def _checked(name: str, value: object, rule: tuple[type, Any, str]) -> Any:
    kind, holds, advice = rule
    if type(value) is int and abs(value) > limits.WHOLE:  # even a float cannot hold every number
        raise BadSetting(name, value, f"must be {advice}, of at most 64 bits")
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or not holds(value):
        raise BadSetting(name, value, f"must be {advice}")
    return value


# --- settings of an address ---------------------------------------------------------------------

_ADDRESS_RULES: dict[str, tuple[type, Any, str]] = {
    "routing": _one_of("multicast", "anycast"),
    "compat": _one_of("default", "artemis"),
    "retroactive_count": (
        int,
        lambda n: 0 <= n <= limits.RETAINED,
        f"from 0 (off) to {limits.RETAINED}",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSpec:
    """The settings of an address."""

    routing: str = "multicast"
    """multicast: each of its queues gets a copy; anycast: it has one queue (R70)."""
    compat: str = "default"
    """Which rules apply to retained messages: default or artemis (C11)."""
    retroactive_count: int = 0
    """How many messages it retains for queues created later; 0: off (R71)."""

    def with_fields(self, given: Mapping[str, object]) -> AddressSpec:
        """Return a copy with some fields changed.

        Raises:
            BadSetting: a field is unknown, of the wrong type or out of range (R90, R103).
        """
        return replace(self, **_all_checked(given, _ADDRESS_RULES, "address"))


ADDRESS_FIELD_NAMES = tuple(f.name for f in fields(AddressSpec))
"""The settings of an address."""
