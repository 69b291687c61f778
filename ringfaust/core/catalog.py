"""Which queues are declared, and what a queue is set to: settings by pattern (R72)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ringfaust.core.model import QueueSpec

Fields = Mapping[str, object]

_RANK = {"*": 1, "#": 3}
_LITERAL, _NOTHING = 0, 2


class Catalog:
    """Declared queues and settings by pattern.

    A pattern is words separated by `.`; `*` stands for one word, `#` for any number, also none.
    """

    def __init__(self, queues: Mapping[str, Fields], settings: Mapping[str, Fields]) -> None:
        """`queues`: fields of the queues that exist, by name; a pattern declares all that match.

        `settings`: fields for the queues that match, whoever declared them.

        Raises:
            BadSetting: a field is unknown or its value is not right.
        """
        self._queues = _ordered(queues)
        self._settings = _ordered(settings)
        for fields in (*queues.values(), *settings.values()):
            QueueSpec().with_fields(fields)

    def declares(self, name: str) -> bool:
        """Is there a queue of that name without anybody having created it?"""
        words = name.split(".")
        return any(_matches(pattern, words) for pattern, _ in self._queues)

    def spec(self, name: str, own: Fields) -> QueueSpec:
        """What the queue is set to; `own` are its own fields, set while running, which win.

        Raises:
            BadSetting: one of `own` is not right.
        """
        words = name.split(".")
        fields: dict[str, object] = {}
        for table in (self._settings, self._queues):
            for pattern, given in table:
                if _matches(pattern, words):
                    fields.update(given)
        return QueueSpec().with_fields({**fields, **own})


def _ordered(table: Mapping[str, Fields]) -> list[tuple[Sequence[str], Fields]]:
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
