"""The declared queues and addresses, and their settings by pattern (R72)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ringfaust.core import limits
from ringfaust.core.address import SEPARATOR, queue_name
from ringfaust.core.patterns import Pattern, is_pattern
from ringfaust.core.settings import AddressSpec, QueueSpec
from ringfaust.errors import BadSetting

Fields = Mapping[str, object]

SUBSCRIPTIONS = "subscriptions"
"""The field of an address that declares its queues."""

_RANK = {"*": 1, "#": 3}
_LITERAL, _NOTHING = 0, 2


class Catalog:
    """Declared queues and addresses, and settings by pattern."""

    def __init__(
        self,
        queues: Mapping[str, Fields],
        settings: Mapping[str, Fields],
        addresses: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Check and order the tables.

        Args:
            queues: settings of queues, by name or pattern. A pattern declares every queue that
                matches.
            settings: settings by pattern, for queues that are declared anywhere. The queue of a
                subscription matches by the name of its address.
            addresses: settings of addresses, by name or pattern; under `subscriptions` the
                settings of their queues, by name.

        Raises:
            BadSetting: a setting is unknown or its value is invalid.
        """
        self._queues = _Table(queues)
        self._named = frozenset([name for name in queues if not is_pattern(name)])
        self._settings = _Table(settings)
        self._addresses = _Table(addresses or {})
        self._subscriptions: dict[tuple[int, ...], dict[str, Fields]] = {}
        """By the entries that match an address."""
        self._specs: dict[tuple[int, ...], QueueSpec] = {}
        """By the entries that match a queue: many queues match the same few patterns."""
        for fields in (*queues.values(), *settings.values()):
            QueueSpec().with_fields(fields)
        for address in (addresses or {}).values():
            AddressSpec().with_fields(_without_subscriptions(address))
            for fields in address.get(SUBSCRIPTIONS, {}).values():
                QueueSpec().with_fields(fields)

    def declares(self, name: str) -> bool:
        """Return whether the configuration declares a queue of that name."""
        address, separator, subscription = name.partition(SEPARATOR)
        if separator:
            return subscription in self.subscriptions(address)
        is_address = self._addresses.has(name)
        return not is_address and self._queues.has(name)

    def declares_address(self, name: str) -> bool:
        """Return whether the configuration declares an address of that name."""
        # A queue of an address is not an address.
        return SEPARATOR not in name and self._addresses.has(name)

    def names(self, name: str) -> bool:
        """Return whether the configuration declares this very queue, and not by a pattern alone."""
        return name in self._named

    def declared_names(self) -> Iterator[str]:
        """The queues that the configuration declares by name, and not by a pattern alone."""
        yield from self._named
        for address, fields in self._addresses.named.items():
            for name in fields.get(SUBSCRIPTIONS, {}):
                yield queue_name(address, name)

    @property
    def patterns(self) -> int:
        """How many of the names in it have wildcards: each is compared with every name."""
        tables = (self._queues, self._settings, self._addresses)
        return sum([len(each.patterns) for each in tables])

    def cost_of(self, name: str) -> int:
        """What it counts among the bytes of a step to find what a name matches (R121)."""
        words = name.count(".") + 1
        return limits.PATTERN_COST_BYTES * self.patterns * words

    def spec(self, name: str, own: Fields) -> QueueSpec:
        """Return the settings of a queue. `own` was set at runtime and wins.

        Raises:
            BadSetting: a setting in `own` is invalid.
        """
        address, separator, subscription = name.partition(SEPARATOR)
        given = [*self._settings.matching(address), *self._queues.matching(name)]
        if separator:
            given.append(self.subscriptions(address).get(subscription, {}))
        if separator or own:
            return _spec([*given, own])
        entries = tuple(map(id, given))  # they live as long as the catalog
        spec = self._specs.get(entries)
        if spec is None:
            spec = self._specs[entries] = _spec(given)
        return spec

    def address(self, name: str, own: Fields) -> AddressSpec | None:
        """Return the settings of an address, or None if it is not declared.

        Raises:
            BadSetting: a setting in `own` is invalid.
        """
        if not self.declares_address(name):
            return None
        fields: dict[str, object] = {}
        for given in self._addresses.matching(name):
            fields.update(_without_subscriptions(given))
        return AddressSpec().with_fields({**fields, **own})

    def subscriptions(self, address: str) -> Mapping[str, Fields]:
        """Return the settings of the queues declared with an address, by subscription name."""
        given = self._addresses.matching(address)
        entries = tuple(map(id, given))
        declared = self._subscriptions.get(entries)
        if declared is None:
            declared = self._subscriptions[entries] = {}
            for each in given:
                for name, fields in each.get(SUBSCRIPTIONS, {}).items():
                    declared[name] = {**declared.get(name, {}), **fields}
        return declared

    def spec_of_stored(self, name: str, own: Fields) -> QueueSpec:
        """As `spec`, of a queue that has had these settings under another configuration.

        A ring of 0 that was set at runtime does not fit without `compat: artemis`: it is left out.
        """
        try:
            return self.spec(name, own)
        except BadSetting:
            return self.spec(name, {each: own[each] for each in own if each != "ring_size"})


class Configuration(NamedTuple):
    """The whole of `queues.yaml`, as it was applied (R128)."""

    revision: int
    """Counts up with each `apply`; 0: that of the host, nothing was applied."""
    document: Mapping[str, Any]
    """`routes`, `queues`, `addresses` and `settings`."""
    who: str = ""
    """Who has applied it."""
    text: str = ""
    """What it changed, or why."""
    applied_ms: int = 0

    def catalog(self) -> Catalog:
        """What it declares.

        Raises:
            BadSetting: a setting is unknown or its value is invalid.
        """
        return catalog_of(self.document)


def catalog_of(document: Mapping[str, Any]) -> Catalog:
    """What the content of a `queues.yaml` declares.

    Raises:
        BadSetting: a setting is unknown or its value is invalid.
    """
    queues, settings, addresses = (
        document.get(each, {}) for each in ("queues", "settings", "addresses")
    )
    return Catalog(queues, settings, addresses)


def beyond_patterns(count: int) -> str:
    """Why a configuration may not have so many names with wildcards; empty: it may (R120)."""
    if count <= limits.PATTERNS:
        return ""
    return (
        f"`queues`, `addresses` and `settings` have {count:,} names with * or #; they may have at "
        f"most {limits.PATTERNS:,}, because each queue's name is compared with all of them"
    )


def _spec(given: Iterable[Fields]) -> QueueSpec:
    """The settings with these fields; the last to name one wins."""
    fields: dict[str, object] = {}
    for some in given:
        fields.update(some)
    return QueueSpec().with_fields(fields)


def _without_subscriptions(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name != SUBSCRIPTIONS}


def specificity(pattern: Pattern) -> list[int]:
    """Of two patterns the one with the lower value decides (R72).

    It compares word by word from the left: literal before `*` before no word before `#`.
    """
    return [_RANK.get(word, _LITERAL) for word in pattern.words] + [_NOTHING]


class _Table:
    """Entries by name or pattern. A name without wildcards is found at once, however many are."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Order by how specific the pattern is; the most specific comes last and wins."""
        compiled = [(Pattern(pattern), fields) for pattern, fields in entries.items()]
        compiled.sort(key=lambda entry: specificity(entry[0]), reverse=True)
        self.named: dict[str, Mapping[str, Any]] = {}
        """Those without wildcards."""
        self.patterns: list[tuple[Pattern, Mapping[str, Any]]] = []
        for pattern, fields in compiled:
            text = ".".join(pattern.words)
            if is_pattern(text):
                self.patterns.append((pattern, fields))
            else:
                self.named[text] = fields

    def has(self, name: str) -> bool:
        """Whether any entry matches."""
        if name in self.named:
            return True
        words = name.split(".")
        return any(pattern.matches(words) for pattern, _ in self.patterns)

    def matching(self, name: str) -> list[Mapping[str, Any]]:
        """The entries that match, the most specific last."""
        words = name.split(".")
        found = [fields for pattern, fields in self.patterns if pattern.matches(words)]
        if name in self.named:
            found.append(self.named[name])
        return found
