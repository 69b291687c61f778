"""`jms` of Artemis 1, in whose core the names of queues and topics begin with prefixes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ringfaust.core.patterns import Pattern, is_pattern
from ringfaust.importers.artemis_values import note_unknown
from ringfaust.importers.imported import Imported, Verdict
from ringfaust.importers.xml_file import Element

_PREFIXES = {"queue": "jms.queue.", "topic": "jms.topic."}
_NAMING = ("name", "match", "address")
"""Attributes that have such names."""
_NAMED = ("address", "forwarding-address", "dead-letter-address", "expiry-address")
"""Elements whose text is such a name."""


class JmsNames:
    """The names of JMS, which has queues and topics in two name spaces; here is one."""

    def __init__(self, sections: list[Element], core: Element) -> None:
        self._names: dict[str, set[str]] = {kind: set() for kind in _PREFIXES}
        for section in sections:
            for kind, names in self._names.items():
                names |= {each.attributes.get("name", "") for each in section.all(kind)}
        for text in _texts(core):
            for kind, prefix in _PREFIXES.items():
                if text.startswith(prefix) and not is_pattern(text):
                    self._names[kind].add(text.removeprefix(prefix))

    def ours(self, kind: str, name: str) -> str:
        """The name of a queue or topic here: a topic with the name of a queue has another."""
        return f"{name}-topic" if kind == "topic" and name in self._names["queue"] else name

    def strip(self, element: Element, imported: Imported) -> None:
        """Take the prefixes off all names and matches below an element."""
        kept = []
        for child in element.children:
            for name in _NAMING:
                if name in child.attributes:
                    child.attributes[name] = self._stripped(child.attributes[name])
            if child.tag in _NAMED:
                child.text = self._stripped(child.text)
            self.strip(child, imported)
            if self._is_kept(child, imported):
                kept.append(child)
        element.children = kept

    def _stripped(self, text: str) -> str:
        for kind, prefix in _PREFIXES.items():
            if text.startswith(prefix) and not self._others(text):
                return self.ours(kind, text.removeprefix(prefix))
        return "#" if text == "jms.#" else text

    def _others(self, match: str) -> list[str]:
        """What a match would also cover without its prefix, such as `topic a`."""
        for kind, prefix in _PREFIXES.items():
            if match.startswith(prefix) and is_pattern(match):
                pattern = Pattern(match.removeprefix(prefix))
                (other,) = _PREFIXES.keys() - {kind}
                names = sorted(self._names[other])
                return [f"{other} {name}" for name in names if pattern.matches(name.split("."))]
        return []

    def _is_kept(self, element: Element, imported: Imported) -> bool:
        """Take out a match that covers too much; of security it stays unknown, as it may deny."""
        match = element.attributes.get("match", "")
        others = self._others(match)
        if not others:
            return True
        why = f"queues and topics share their names here, and it would be for {others[0]}, too"
        imported.note(Verdict.NONE, element.line, f"{element.tag} {match}", why)
        without = re.sub(r"^jms\.(queue|topic)\.", "", match)
        element.attributes["match"] = re.split(r"[*#]", without)[0] + "${" + match + "}"
        return element.tag == "security-setting"


def _texts(element: Element) -> Iterator[str]:
    for child in element.children:
        yield from (child.attributes.get(name, "") for name in _NAMING)
        if child.tag in _NAMED:
            yield child.text
        yield from _texts(child)


def read_jms(section: Element, names: JmsNames, imported: Imported) -> None:
    """Read `jms`: its queues, and its topics, which become addresses."""
    for each in section.children:
        given, about = each.attributes.get("name", ""), f"jms, {each.tag}"
        if each.tag not in _PREFIXES:
            why = "not read: Kafka clients connect to the brokers"
            imported.note(Verdict.NONE, each.line, about, why)
            continue
        about += f" {given}"
        name = names.ours(each.tag, given)
        if not imported.is_name(name, each.line, about, patterns=False):
            continue
        every = {child.tag for child in each.children}
        note_unknown(each, about, imported, children=every, attributes=("name",))
        is_queue = each.tag == "queue"
        (imported.queues if is_queue else imported.addresses).setdefault(name, {})
        what = f"{'queue' if is_queue else 'address'} {name}"
        if name == given:
            imported.note(Verdict.TAKEN, each.line, about, what)
        else:
            why = f"{what}, for {given} is a queue, too, and both share their names here"
            imported.note(Verdict.CHANGED, each.line, about, why)
        for child in each.children:  # entries of JNDI, a selector, durable
            why = "not read: set it by hand if the queue needs it"
            said = f"{about}, {child.tag} = {child.text}"
            imported.note(Verdict.NONE, child.line, said, why)
