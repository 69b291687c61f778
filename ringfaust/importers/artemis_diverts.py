"""`diverts` of broker.xml: a copy becomes a queue of the address, a detour becomes a route.

Artemis routes what a divert forwards by its new address, so diverts form chains; and what an
exclusive one takes reaches neither the queues of the address nor its other diverts
(`DivertImpl.route`, `BindingsImpl.route`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ringfaust.core.catalog import Catalog
from ringfaust.core.patterns import Pattern, is_pattern
from ringfaust.core.settings import FIELD_NAMES, stored_names, written_name
from ringfaust.importers.artemis_queues import read_filter
from ringfaust.importers.artemis_values import note_unknown, placeholder, switch
from ringfaust.importers.imported import Imported, Verdict, topic_of
from ringfaust.importers.xml_file import Element

_READ = (
    "address", "forwarding-address", "exclusive", "filter", "routing-name", "routing-type",
    "transformer", "transformer-class-name",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Divert:
    """One divert, whose names are possible here."""

    name: str
    source: str
    target: str
    element: Element
    about: str

    def note(self, verdict: Verdict, why: str, imported: Imported) -> None:
        imported.note(verdict, self.element.line, self.about, why)


def read_diverts(core: Element, imported: Imported) -> None:
    """Read all `diverts`, since they form chains."""
    sections = list(core.all("diverts"))
    for section in sections:
        note_unknown(section, "diverts", imported, children=("divert",))
    elements = [element for section in sections for element in section.all("divert")]
    named = [_named(element, imported) for element in elements]
    copies: list[_Divert] = []
    by_topic: dict[str, _Divert] = {}
    for divert in filter(None, named):
        is_exclusive = _is_exclusive(divert, imported)
        if is_exclusive is None or not _is_possible(divert, is_exclusive, imported):
            continue
        if not is_exclusive:
            copies.append(divert)
        elif (other := by_topic.setdefault(topic_of(divert.source), divert)) is not divert:
            topic = topic_of(divert.source)
            why = f"the topic {topic} leads to {other.target} already, and to one queue only"
            divert.note(Verdict.NONE, why, imported)
    detours = {divert.source: divert for divert in by_topic.values()}
    for divert in detours.values():
        _detour(divert, detours, imported)
    settings, queues = (
        {name: stored_names(fields) for name, fields in table.items()}
        for table in (imported.settings, imported.queues)
    )
    defaults, catalog = Catalog({}, settings), Catalog(queues, settings)
    copied: dict[str, list[_Divert]] = {}
    for divert in copies:
        copied.setdefault(divert.source, []).append(divert)
    for divert in copies:
        end = _copy(divert, detours, copied, imported)
        if end and not is_pattern(divert.source):
            wanted, given = catalog.spec(end, {}), defaults.spec(divert.source, {})
            fields = imported.subscriptions(divert.source)[divert.name]
            for name in FIELD_NAMES:
                if (value := getattr(wanted, name)) != getattr(given, name):
                    fields.setdefault(written_name(name), value)


def _named(element: Element, imported: Imported) -> _Divert | None:
    """Read the names of a divert, and say what has no equivalent; None: it is not taken over."""
    name = element.attributes.get("name", "")
    source, target = element.text_of("address"), element.text_of("forwarding-address")
    about = f"divert {name} from {source} to {target}"
    if not all(imported.is_name(each, element.line, about) for each in (source, target)):
        return None
    if not imported.is_name(name, element.line, about, patterns=False):  # of the queue of a copy
        return None
    for child in element.all(
        "transformer", "transformer-class-name", "routing-type", "routing-name"
    ):
        why = "the message stays as it is, and its divert has one name"
        imported.note(Verdict.NONE, child.line, f"{about}, {child.tag}", why)
    note_unknown(element, about, imported, children=_READ, attributes=("name",))
    return _Divert(name, source, target, element, about)


def _is_exclusive(divert: _Divert, imported: Imported) -> bool | None:
    """Whether a divert is a detour; None: only the broker's machine knows."""
    exclusive = divert.element.first("exclusive")
    if exclusive is None:
        return False
    if (unknown := placeholder(exclusive.text)) is not None:
        why = f"the property {unknown} is not known here, so it may be a copy or a detour"
        divert.note(Verdict.NONE, why, imported)
        return None
    return switch(imported, exclusive.line, "exclusive", exclusive.text)


def _is_possible(divert: _Divert, is_exclusive: bool, imported: Imported) -> bool:
    """Return whether there is an equivalent; say why if there is none."""
    declared = (*imported.queues, *imported.addresses)
    pattern = Pattern(divert.source)
    hidden = [name for name in declared if pattern.matches(name.split("."))]
    if "," in divert.target:
        why = "it forwards to several addresses: write one divert for each"
    elif is_pattern(divert.source) and (is_exclusive or hidden):
        why = "its source is a pattern: write a divert for each address by name"
    elif is_exclusive and divert.element.first("filter") is not None:
        why = "a message goes to one queue or to each queue of an address, not to either"
    else:
        return True
    divert.note(Verdict.NONE, why, imported)
    return False


_LONGEST = 100
"""The most diverts that are followed."""
_CIRCLE = f"diverts lead in a circle, or through more than {_LONGEST} addresses"


def _path(start: str, detours: dict[str, _Divert]) -> list[str]:
    """The addresses that a message passes; none if there is no end of them."""
    path = [start]
    while (detour := detours.get(path[-1])) is not None:
        path.append(detour.target)
        if len(path) > _LONGEST:
            return []
    return path


def _detour(divert: _Divert, detours: dict[str, _Divert], imported: Imported) -> None:
    """A detour is a route to the end of its chain."""
    source = divert.source
    path = _path(source, detours)
    if not path:
        divert.note(Verdict.NONE, _CIRCLE, imported)
        return
    end = path[-1]
    if end not in imported.queues and end not in imported.addresses:
        imported.queues[end] = {}
    topic = topic_of(source)
    imported.routes[topic] = end
    imported.detours[topic] = source
    through = f"through {', '.join(path[1:-1])} " if path[1:-1] else ""
    why = f"a route takes the records of topic {topic} {through}to {end}"
    for what, table in (("queue", imported.queues), ("address", imported.addresses)):
        if source in table:
            why += f"; {what} {source} gets only records of the topic messages that name it"
    divert.note(Verdict.CHANGED, why, imported)


def _copy(
    divert: _Divert,
    detours: dict[str, _Divert],
    copies: dict[str, list[_Divert]],
    imported: Imported,
) -> str:
    """A copy is a queue of the address; a plain queue becomes an address for it.

    Returns:
        Where the copies go in Artemis, at last; empty: it is not taken over.
    """
    source, path = divert.source, _path(divert.target, detours)
    if (other := detours.get(source)) is not None:
        why = f"nothing reaches it: divert {other.name} takes what is sent to {source}"
        divert.note(Verdict.NONE, why, imported)
        return ""
    if not path:
        divert.note(Verdict.NONE, _CIRCLE, imported)
        return ""
    fields = imported.subscriptions(source).setdefault(divert.name, {})
    imported.addresses[source].pop("routing", None)
    where = f"{source}::{divert.name}"
    why = f"{source} copies to its queue {where}; consumers of {path[-1]} attach there"
    if is_pattern(source):
        why += f"; it has the settings of {source}"
    for other in copies.get(path[-1], []):
        why += f"; divert {other.name} does not copy them on to {other.target}"
    divert.note(Verdict.CHANGED, why, imported)
    if (selector := divert.element.first("filter")) is not None:
        read_filter(divert.about, selector, fields, imported)
    return path[-1]
