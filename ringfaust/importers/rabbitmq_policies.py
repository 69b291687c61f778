"""Which setting of a RabbitMQ queue wins: its argument, its policy or its operator policy."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfaust.importers.imported import CannotImport, Imported, Verdict, overlap
from ringfaust.importers.vendor import most_steps

_PATTERN_CHARS = 250
_NAME_BYTES = 255
"""The longest name in RabbitMQ."""
_SEARCH_STEPS = 200_000_000
"""Enough for .*a.*b.* in such a name. Few names are as long, and few searches try everything."""
_READ_DIFFERENTLY = re.compile(r"\{,\d")
"""What Erlang takes for text, and Python for a repetition."""
_PREFIX = re.compile(r"\^([\w-]+(?:\\\.[\w-]+)*)\\\.(?:\.\*\$?)?")
_APPLIES_TO = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}
_LIMITS = frozenset({"max-length", "max-length-bytes", "message-ttl", "expires", "delivery-limit"})
"""The smallest value applies, wherever it is set (rabbit_amqqueue_process, res_min)."""
_OF_STREAMS = frozenset({"max-age", "stream-max-segment-size-bytes", "initial-cluster-size"})
_OF_CLASSIC = (
    "ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure",
    "queue-mode", "queue-master-locator", "max-priority",
)  # fmt: skip
_NOT_APPLICABLE = {
    "classic": _OF_STREAMS | {
        "delivery-limit", "dead-letter-strategy", "max-in-memory-length", "max-in-memory-bytes",
        "target-group-size",
    },
    "quorum": _OF_STREAMS | {*_OF_CLASSIC},
    "stream": frozenset({
        *_OF_CLASSIC, "expires", "message-ttl", "dead-letter-exchange", "dead-letter-routing-key",
        "max-length", "max-in-memory-length", "max-in-memory-bytes", "overflow", "delivery-limit",
        "dead-letter-strategy",
    }),
}  # fmt: skip
"""A policy with one of these does not apply to a queue of that type, with nothing that it sets.

From `unsupported_policies` in rabbit_{classic,quorum,stream}_queue: what RabbitMQ 3.12 to 4 share.
"""
_LOCATES_CLASSIC_QUEUES_SINCE = 4


@dataclass(frozen=True, slots=True)
class Given:
    """A setting of a queue, and who sets it."""

    owner: str
    """Such as `queue orders, policy short`."""
    value: Any

    def about(self, name: str) -> str:
        """Return owner, name and value, for the setting's line."""
        return f"{self.owner}, {name} = {str(self.value)[:80]}"


Settings = dict[str, Given]
"""Settings by name, without the `x-` of arguments."""


def merged(
    weak: Settings, strong: Settings, imported: Imported, weak_wins: Collection[str] = ()
) -> Settings:
    """Return what applies of two sources; each setting that does not apply gets its line.

    `weak_wins`: settings for which the weak source decides.
    """
    found = {**weak, **strong}
    for name in sorted(weak.keys() & strong.keys()):
        wins, loses = strong[name], weak[name]
        if name in weak_wins or (name in _LIMITS and _is_smaller(name, loses.value, wins.value)):
            wins, loses = loses, wins
        found[name] = wins
        why = f"{name} = {str(wins.value)[:80]} of {wins.owner} applies, as in RabbitMQ"
        imported.note(Verdict.CHANGED, 0, loses.about(name), why)
    return found


def _is_smaller(name: str, one: Any, other: Any) -> bool:
    if type(one) is not int or type(other) is not int:
        return False
    if name == "delivery-limit" and min(one, other) < 0:  # below 0: none
        return one > other
    return one < other


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy of the file."""

    kind: str
    """`policy` or `operator policy`."""
    name: str
    vhost: str
    pattern: str
    matches: re.Pattern[bytes] | None
    """None: the pattern is not read here."""
    applies_to: str
    priority: int
    definition: Mapping[str, Any]

    @property
    def about(self) -> str:
        return f"{self.kind} {self.name[:80]}, pattern = {self.pattern[:80]}"


class Policies:
    """At most one policy and one operator policy apply to a queue: those of highest priority."""

    def __init__(
        self, policies: Sequence[Mapping[str, Any]], operators: Sequence[Mapping[str, Any]],
        path: Path, version: int,
    ) -> None:  # fmt: skip
        """Read them.

        Args:
            policies: of the file.
            operators: entries of `parameters`, of which those with the component `operator_policy`
                count.
            path: of the file.
            version: of RabbitMQ.

        Raises:
            CannotImport: the definition of one is not an object.
        """
        self._policies = [_policy("policy", each, each, path) for each in policies]
        self._policies += [
            _policy("operator policy", each, each.get("value") or {}, path)
            for each in operators
            if each.get("component") == "operator_policy"
        ]
        self._lacks = dict(_NOT_APPLICABLE)
        if version < _LOCATES_CLASSIC_QUEUES_SINCE:
            self._lacks["classic"] |= {"queue-leader-locator"}
        self._used: set[int] = set()
        """By id: what a queue has, or might have."""
        self._equals: set[int] = set()
        """By id: those with a line that another one has the same priority."""

    def of(self, vhost: str, name: str, ours: str, kind: str, imported: Imported) -> Settings:
        """Return what policies set for a queue. `ours`: its name here. `kind`: its type."""
        found: Settings = {}
        for source in ("policy", "operator policy"):
            fitting = [
                each
                for each in self._policies
                if each.kind == source
                and each.vhost == vhost
                and each.applies_to in ("all", "queues", _APPLIES_TO.get(kind))
                and not each.definition.keys() & self._lacks.get(kind, frozenset())
                and each.matches
                and each.matches.search(name.encode())
            ]
            if fitting:
                best = max(fitting, key=lambda each: each.priority)
                self._note_equals(best, fitting, ours, imported)
                if not best.definition and id(best) not in self._used:
                    imported.note(Verdict.NONE, 0, best.about, "it sets nothing")
                self._used.add(id(best))
                owner = f"queue {ours}, {source} {best.name[:80]}"
                given = {key: Given(owner, value) for key, value in best.definition.items()}
                found = merged(found, given, imported)
        return found

    def _note_equals(
        self, best: _Policy, fitting: Sequence[_Policy], queue: str, imported: Imported
    ) -> None:
        """Give a line to those of one priority, of which RabbitMQ takes any (rabbit_policy)."""
        for each in fitting:
            if each is best or each.priority < best.priority or id(each) in self._equals:
                continue
            self._equals.add(id(each))
            self._used.add(id(each))
            why = (
                f"{best.kind} {best.name[:80]} has the same priority and covers queue {queue[:80]},"
                " too: RabbitMQ applies one of them, and does not say which; here the first"
            )
            imported.note(Verdict.NONE, 0, each.about, why)

    def for_later_queues(
        self, hosts: Collection[str], declared: Collection[str], imported: Imported
    ) -> dict[str, Settings]:
        """Return the settings by pattern of policies that no queue of the file has.

        `hosts`: virtual hosts of the file's queues. `declared`: names here of its queues and
        exchanges, which these settings must not touch.
        """
        found: dict[str, Settings] = {}
        for each in sorted(self._policies, key=lambda policy: -policy.priority):
            if id(each) in self._used:
                continue
            ours, why = _our_pattern(each, hosts), ""
            if each.matches is None:
                why = (
                    f"its pattern {NOT_READ}: set {_listed(each.definition)} by hand on the queues "
                    "that it names, where it comes before policies of lower priority"
                )
            elif "alternate-exchange" in each.definition:
                ours, why = None, "a message that no queue gets is reported as the event `unrouted`"
            elif each.applies_to in ("exchanges", "streams"):
                why = f"it is for {each.applies_to}, whose policies have no equivalent"
            elif ours is None:
                why = "no queue in the file has it, and its pattern has no form here"
            elif each.vhost not in hosts:
                why = f"the file has no queue in its virtual host {each.vhost[:80]}"
            elif touched := next((name for name in declared if overlap(ours, name)), None):
                why = f"its pattern covers {touched[:80]}, to which RabbitMQ does not apply it"
            elif any(overlap(ours, other) for other in found):
                why = "another policy covers some of its queues, and settings would add up here"
            if ours is None or why:
                imported.note(Verdict.NONE, 0, each.about, why)
                continue
            imported.note(Verdict.CHANGED, 0, each.about, f"settings of the pattern {ours}")
            found[ours] = {
                name: Given(each.about, value) for name, value in each.definition.items()
            }
        return found


def _policy(kind: str, entry: Mapping[str, Any], content: Any, path: Path) -> _Policy:
    name = str(entry.get("name"))
    definition = content.get("definition") or {} if isinstance(content, dict) else None
    if not isinstance(definition, dict):
        raise CannotImport(path, 0, f"{kind} {name[:80]!r}: definition is not an object")
    pattern, priority = str(content.get("pattern", "")), content.get("priority", 0)
    return _Policy(
        kind, name, str(entry.get("vhost", "/")), pattern,
        compiled(pattern), str(content.get("apply-to", "all")),
        priority if isinstance(priority, int) else 0, definition,
    )  # fmt: skip


def _listed(definition: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in definition.items())[:80] or "nothing"


NOT_READ = (
    "is not read here: Python lacks some of Erlang's patterns, and some are searched for hours"
)


def compiled(pattern: str) -> re.Pattern[bytes] | None:
    """Return a pattern of the file, which RabbitMQ looks for in the bytes of a name.

    None: it is not a regular expression here, too long, Erlang reads it differently, or to search
    for it might take very long. Erlang gives up such a search after 10,000,000 steps.
    """
    if len(pattern) > _PATTERN_CHARS or _READ_DIFFERENTLY.search(pattern):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # [[:alpha:]] is another set in Python
            found = re.compile(pattern.encode())
    except (re.error, OverflowError, FutureWarning):
        return None
    return found if most_steps(found, _NAME_BYTES) <= _SEARCH_STEPS else None


def _our_pattern(policy: _Policy, hosts: Collection[str]) -> str | None:
    """The pattern of the same queues here; None if there is none."""
    if policy.pattern in ("", ".*", "^.*", "^.*$", "^"):
        found = "#"
    elif prefix := _PREFIX.fullmatch(policy.pattern):
        found = prefix[1].replace("\\", "") + ".#"
    else:
        return None
    if len(hosts) == 1:
        return found
    if policy.vhost != "/":
        return f"{policy.vhost}.{found}"
    others = (f"{host}.#" for host in hosts if host != "/")
    return None if any(overlap(found, other) for other in others) else found
