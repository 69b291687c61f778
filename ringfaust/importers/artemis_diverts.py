"""`diverts` of broker.xml: a copy becomes a queue of the address, a detour becomes a route."""

from __future__ import annotations

from ringfaust.importers.artemis_queues import read_filter
from ringfaust.importers.artemis_values import Reader, UnknownValue, note_unknown
from ringfaust.importers.imported import Imported, Verdict, topic_of
from ringfaust.importers.xml_file import Element

_READ = (
    "address", "forwarding-address", "exclusive", "filter", "routing-name", "routing-type",
    "transformer", "transformer-class-name",
)  # fmt: skip


def read_diverts(section: Element, reader: Reader, imported: Imported) -> None:
    """Read `diverts`."""
    note_unknown(section, "diverts", imported, children=("divert",))
    for divert in section.all("divert"):
        name = divert.attributes.get("name", "")
        source, target = divert.text_of("address"), divert.text_of("forwarding-address")
        about = f"divert {name} from {source} to {target}"
        if not (
            imported.is_name(source, divert.line, about)
            and imported.is_name(target, divert.line, about)
            and imported.is_name(name, divert.line, about)
        ):
            continue
        for child in divert.all(
            "transformer", "transformer-class-name", "routing-type", "routing-name"
        ):
            why = "the message stays as it is, and its divert has one name"
            imported.note(Verdict.NONE, child.line, f"{about}, {child.tag}", why)
        note_unknown(divert, about, imported, children=_READ, attributes=("name",))
        exclusive = divert.first("exclusive")
        try:
            is_exclusive = exclusive is not None and reader.switch(
                exclusive, "exclusive", reader.value(exclusive)
            )
        except UnknownValue as unknown:
            why = f"the property {unknown} is not known here, so it may be a copy or a detour"
            imported.note(Verdict.NONE, divert.line, about, why)
            continue
        if is_exclusive and divert.first("filter") is not None:
            why = "a message goes to one queue or to each queue of an address, not to either"
            imported.note(Verdict.NONE, divert.line, about, why)
        elif is_exclusive and topic_of(source) in imported.routes:
            other = imported.routes[topic_of(source)]
            why = f"the topic {topic_of(source)} leads to {other} already, and to one queue only"
            imported.note(Verdict.NONE, divert.line, about, why)
        elif is_exclusive:
            if target not in imported.queues and target not in imported.addresses:
                imported.queues[target] = {}
            imported.routes[topic_of(source)] = target
            why = f"a route takes the records of topic {topic_of(source)} to {target}"
            imported.note(Verdict.CHANGED, divert.line, about, why)
        else:
            _copy(divert, name, source, about, imported)


def _copy(divert: Element, name: str, source: str, about: str, imported: Imported) -> None:
    """A copy is a queue of the address; a plain queue becomes an address for it."""
    plain = imported.queues.pop(source, None)
    queues = imported.subscriptions(source)
    imported.addresses[source].pop("routing", None)
    if plain is not None:
        queues[source] = plain
    fields = queues.setdefault(name, {})
    target = divert.text_of("forwarding-address")
    why = f"{source} copies to its queue {source}::{name}; consumers of {target} attach there"
    if plain is not None:
        why += f", and those of {source} attach {source}::{source}"
    imported.note(Verdict.CHANGED, divert.line, about, why)
    if (selector := divert.first("filter")) is not None:
        read_filter(about, selector, fields, imported)
