"""Which queues and addresses are declared, and what they are set to: by pattern (R72)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ringfaust.core.address import SEPARATOR
from ringfaust.core.model import AddressSpec, QueueSpec

Fields = Mapping[str, object]
_Table = list[tuple[Sequence[str], Mapping[str, Any]]]

SUBSCRIPTIONS = "subscriptions"
"""Of an address' fields the one that is about its queues."""

_RANK = {"*": 1, "#": 3}
_LITERAL, _NOTHING = 0, 2


class Catalog:
    """Declared queues and addresses, and settings by pattern.

    A pattern is words separated by `.`; `*` stands for one word, `#` for any number, also none.
    """

    def __init__(
        self,
        queues: Mapping[str, Fields],
        settings: Mapping[str, Fields],
        addresses: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`queues`: fields of the queues that exist, by name; a pattern declares all that match.

        `settings`: fields for the queues that match, whoever declared them; a subscription's queue
        matches by the name of its address. `addresses`: likewise, their own fields, and under
        `subscriptions` those of their queues by name.

        Raises:
            BadSetting: a field is unknown or its value is not right.
        """
        self._queues = _ordered(queues)
        self._settings = _ordered(settings)
        self._addresses = _ordered(addresses or {})
        for fields in (*queues.values(), *settings.values()):
            QueueSpec().with_fields(fields)
        for address in (addresses or {}).values():
            AddressSpec().with_fields(_without_subscriptions(address))
            for fields in address.get(SUBSCRIPTIONS, {}).values():
                QueueSpec().with_fields(fields)

    def declares(self, name: str) -> bool:
        """Is there a queue of that name without anybody having created it?"""
        address, separator, subscription = name.partition(SEPARATOR)
        if separator:
            return subscription in self.subscriptions(address)
        is_address = any(True for _ in _matching(self._addresses, name))
        return not is_address and any(True for _ in _matching(self._queues, name))

    def spec(self, name: str, own: Fields) -> QueueSpec:
        """What the queue is set to; `own` are its own fields, set while running, which win.

        Raises:
            BadSetting: one of `own` is not right.
        """
        address, _, subscription = name.partition(SEPARATOR)
        fields: dict[str, object] = {}
        for given in _matching(self._settings, address):
            fields.update(given)
        for given in _matching(self._queues, name):
            fields.update(given)
        fields.update(self.subscriptions(address).get(subscription, {}))
        return QueueSpec().with_fields({**fields, **own})

    def address(self, name: str, own: Fields) -> AddressSpec | None:
        """What the address is set to, or None if there is none.

        Raises:
            BadSetting: one of `own` is not right.
        """
        if SEPARATOR in name:  # one of its queues, whatever the pattern would match
            return None
        found = list(_matching(self._addresses, name))
        fields: dict[str, object] = {}
        for given in found:
            fields.update(_without_subscriptions(given))
        return AddressSpec().with_fields({**fields, **own}) if found else None

    def subscriptions(self, address: str) -> dict[str, Fields]:
        """Fields of the queues that are declared with an address, by their names in it."""
        declared: dict[str, Fields] = {}
        for given in _matching(self._addresses, address):
            for name, fields in given.get(SUBSCRIPTIONS, {}).items():
                declared[name] = {**declared.get(name, {}), **fields}
        return declared


def _without_subscriptions(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name != SUBSCRIPTIONS}


def _matching(table: _Table, name: str) -> Iterator[Mapping[str, Any]]:
    """The fields of all patterns that match, the most specific last."""
    words = name.split(".")
    return (fields for pattern, fields in table if _matches(pattern, words))


def _ordered(table: Mapping[str, Mapping[str, Any]]) -> _Table:
    """By how specific the pattern is, the most specific last, so that it wins."""
    split = [(pattern.split("."), fields) for pattern, fields in table.items()]
    return sorted(split, key=lambda entry: _specificity(entry[0]), reverse=True)


def _specificity(pattern: Sequence[str]) -> list[int]:
    """Word by word from the left: literal before `*` before nothing before `#`."""
    return [_RANK.get(word, _LITERAL) for word in pattern] + [_NOTHING]


def _matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_matches(pattern[1:], words[i:]) for i in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _matches(pattern[1:], words[1:])
