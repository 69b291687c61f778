"""`broker.xml` of ActiveMQ Artemis and AMQ Broker: addresses, queues, settings, diverts, roles."""

from __future__ import annotations

from pathlib import Path

from ringfaust.core.catalog import Catalog
from ringfaust.core.patterns import Pattern, is_pattern
from ringfaust.core.settings import stored_names
from ringfaust.importers.artemis_core import HANDLED, read_core
from ringfaust.importers.artemis_diverts import read_diverts
from ringfaust.importers.artemis_jms import JmsNames, read_jms
from ringfaust.importers.artemis_matches import AddressSetting, share_names
from ringfaust.importers.artemis_queues import read_addresses, read_old_queues
from ringfaust.importers.artemis_security import read_security
from ringfaust.importers.artemis_settings import read_address_settings
from ringfaust.importers.artemis_values import note_unknown, resolve, wildcards_of
from ringfaust.importers.imported import CannotImport, Fields, Imported, Verdict
from ringfaust.importers.xml_file import Element, read_xml


def import_artemis(path: Path) -> Imported:
    """Read a broker.xml, or a part of one such as `<addresses>`.

    Raises:
        CannotImport: it is not XML, too large, or not Artemis' configuration; it names the line.
    """
    imported = Imported(path)
    with imported.kept_when_refused():
        _read(path, read_xml(path), imported)
    return imported


def _read(path: Path, root: Element, imported: Imported) -> None:
    resolve(root, imported)
    jms = list(root.all("jms")) if root.tag == "configuration" else []
    has_core = not jms or root.first("core") is not None
    core = _core(path, root) if has_core else Element("core", {}, root.line)
    names = JmsNames(jms, core)
    if jms:
        names.strip(core, imported)
    _note_others(root, imported)
    for element in {id(each): each for each in (root, core) if each.tag in _OUTER}.values():
        tags = {child.tag for child in element.children}
        note_unknown(element, element.tag, imported, children=tags)
    wildcards = wildcards_of(core, imported)
    read_core(core, imported)
    found: list[AddressSetting] = []
    for section in core.all("address-settings"):
        found += read_address_settings(section, wildcards, imported, is_old=bool(jms))
    for setting in found:
        if setting.fields:
            imported.settings.setdefault(setting.pattern, {}).update(setting.fields)
    given = {match: stored_names(fields) for match, fields in imported.settings.items()}
    defaults = Catalog({}, given)
    for section in core.all("addresses"):
        read_addresses(section, defaults, imported)
    for section in core.all("queues"):
        read_old_queues(section, defaults, imported)
    for section in jms:
        read_jms(section, names, imported)
    imported.note_dead_letters(_dead_letter_addresses(core))
    _keep_retroactive(found, imported)
    _declare_patterns(found, imported)
    read_diverts(core, imported)
    imported.admit_consumers()
    _note_rings(imported)
    imported.add_routes()
    read_security(core, wildcards, imported)


def _note_rings(imported: Imported) -> None:
    """Say which message leaves a full ring, which is another one where messages have priorities."""
    tables = [imported.settings, imported.queues]
    tables += [imported.members(name) for name in imported.addresses]
    sizes = [fields.get("ring_size") for table in tables for fields in table.values()]
    if any(isinstance(size, int) and size > 0 for size in sizes):
        why = (
            "the oldest leaves a full ring; in Artemis the next to be delivered, of the highest "
            "priority: `evict: head` does the same"
        )
        imported.note(Verdict.CHANGED, 0, "rings, messages of several priorities", why)


def _core(path: Path, root: Element) -> Element:
    """Return the element with the sections; a section alone is put into one."""
    if root.tag == "configuration":
        core = root.first("core")
        if core is None:
            raise CannotImport(path, root.line, "has no <core>, which contains the queues")
        return core
    if root.tag == "core":
        return root
    if root.tag in HANDLED:
        return Element("core", {}, root.line, children=[root])
    raise CannotImport(
        path, root.line, f"<{root.tag[:60]}> is not broker.xml, whose root is <configuration>"
    )


_OUTER = ("configuration", "core")


def _note_others(root: Element, imported: Imported) -> None:
    """Say which elements beside `core` were not read."""
    for each in root.children if root.tag == "configuration" else []:
        if each.tag not in ("core", "jms"):
            why = "not read: only what is in core is the broker's configuration"
            imported.note(Verdict.NONE, each.line, each.tag, why)


def _dead_letter_addresses(core: Element) -> set[str]:
    """The addresses to which dead or expired messages went."""
    return {
        child.text
        for section in core.all("address-settings")
        for setting in section.all("address-setting")
        for child in setting.all("dead-letter-address", "expiry-address")
    }


def _keep_retroactive(found: list[AddressSetting], imported: Imported) -> None:
    """Give addresses their `retroactive_count`; a pattern of its own if no queue would suffer.

    `found`: in Artemis' order, so the first that covers a name decides.
    """
    given = [each for each in found if each.retroactive is not None]
    for setting in given if any(each.retroactive for each in given) else ():
        pattern = Pattern(setting.pattern)
        covered = [name for name in imported.addresses if pattern.matches(name.split("."))]
        for name in covered:
            imported.addresses[name].setdefault("retroactive_count", setting.retroactive)
        hidden = [name for name in imported.queues if pattern.matches(name.split("."))]
        if not hidden:
            fields: Fields = {"retroactive_count": setting.retroactive}
            imported.addresses.setdefault(setting.pattern, fields)
        elif not covered:
            about = f"address-setting {setting.pattern}, retroactive-message-count"
            why = f"{hidden[0]} is a queue, and only an address keeps messages for later queues"
            imported.note(Verdict.NONE, setting.element.line, about, why)


def _declare_patterns(found: list[AddressSetting], imported: Imported) -> None:
    """Declare the names that Artemis would create at their first use: first the addresses."""
    declared = imported.addresses.keys() | imported.queues.keys()
    created = [each for each in found if each.creates and each.pattern not in declared]
    for setting in sorted(created, key=lambda each: not each.is_multicast):
        about = f"address-setting {setting.pattern}, default-address-routing-type"
        if setting.is_multicast:
            hidden = [
                name
                for name in imported.queues
                if not is_pattern(name) and Catalog({setting.pattern: {}}, {}).declares(name)
            ]
            if hidden:
                why = (
                    f"the pattern would hide queue {hidden[0]}: declare multicast addresses by name"
                )
                imported.note(Verdict.NONE, setting.element.line, about, why)
            else:
                imported.addresses.setdefault(setting.pattern, {})
            continue
        imported.queues.setdefault(setting.pattern, {})
        other = next(
            (
                each
                for each in found
                if each.pattern in imported.addresses and share_names(each, setting)
            ),
            None,
        )
        if other is not None:
            why = f"a new name that {other.pattern} covers, too, is an address"
            imported.note(Verdict.CHANGED, setting.element.line, about, why)
