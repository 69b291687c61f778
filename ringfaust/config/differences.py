"""How two contents of a queues.yaml differ, entry by entry (R128)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringfaust.core.settings import written_name

_SECTIONS = ("routes", "queues", "addresses", "settings")
_TEXT_CHARS = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry that is not the same in both."""

    section: str
    """routes, queues, addresses or settings."""
    name: str
    """A topic of `routes`, otherwise the name or pattern."""
    what: str
    """added, removed or changed."""
    before: dict[str, Any]
    """Its fields that differ, as they were."""
    now: dict[str, Any]

    def __str__(self) -> str:
        mark = {"added": "+", "removed": "-"}.get(self.what, "~")
        names = sorted({*self.before, *self.now})
        texts = [f"{name}: {self._change(name)}" for name in names]
        return f"{mark} {self.section} {self.name}  {', '.join(texts)}".rstrip()

    def _change(self, name: str) -> str:
        if self.what == "changed":
            was, has = (str(each.get(name, "default")) for each in (self.before, self.now))
            return f"{was} -> {has}"
        return str({**self.before, **self.now}[name])


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Return what is not the same, in the order of the sections and names.

    Args:
        before: the content of a queues.yaml, as `QueuesConfig.document` returns it.
        now: another one.
    """
    found = []
    for section in _SECTIONS:
        old, new = (_entries(section, each.get(section, ())) for each in (before, now))
        for name in sorted({*old, *new}):
            was, has = old.get(name), new.get(name)
            if was == has:
                continue
            what = "added" if was is None else "removed" if has is None else "changed"
            was, has = was or {}, has or {}
            fields = [each for each in (*was, *has) if was.get(each) != has.get(each)]
            found.append(Difference(section, name, what, _only(was, fields), _only(has, fields)))
    return found


def summary(found: Sequence[str]) -> str:
    """What was changed, in one short line; `found`: the differences as text."""
    text = "; ".join(found)
    return text if len(text) <= _TEXT_CHARS else text[: _TEXT_CHARS - 1] + "…"


def _only(fields: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {written_name(name): fields[name] for name in names if name in fields}


def _entries(section: str, content: Any) -> dict[str, dict[str, Any]]:
    """The entries by name, each with plain fields."""
    if section == "routes":
        return {route["topic"]: {**route, "topic": None} for route in content}
    return {name: dict(_flat(fields)) for name, fields in dict(content).items()}


def _flat(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if name == "subscriptions":
            yield from ((f"subscriptions.{each}", own) for each, own in value.items())
        else:
            yield name, value
