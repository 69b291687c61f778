"""`broker.xml` of ActiveMQ Artemis and AMQ Broker: addresses, queues, settings, diverts, roles."""

from __future__ import annotations

from pathlib import Path

from ringfaust.core.catalog import Catalog
from ringfaust.core.patterns import Pattern, is_pattern
from ringfaust.importers.artemis_core import HANDLED, read_core
from ringfaust.importers.artemis_diverts import read_diverts
from ringfaust.importers.artemis_queues import read_addresses, read_old_queues
from ringfaust.importers.artemis_security import read_security
from ringfaust.importers.artemis_settings import AddressSetting, read_address_settings
from ringfaust.importers.artemis_values import Reader, wildcards_of
from ringfaust.importers.imported import CannotImport, Fields, Imported, Verdict
from ringfaust.importers.xml_file import Element, read_xml


def import_artemis(path: Path) -> Imported:
    """Read a broker.xml, or a part of one such as `<addresses>`.

    Raises:
        CannotImport: it is not XML, too large, or not Artemis' configuration; it names the line.
    """
    core = _core(path, read_xml(path))
    imported = Imported(path)
    reader = Reader(path)
    wildcards = wildcards_of(core, imported)
    read_core(core, reader, imported)
    found: list[AddressSetting] = []
    for section in core.all("address-settings"):
        found += read_address_settings(section, reader, wildcards, imported)
    for setting in found:
        if setting.fields:
            imported.settings.setdefault(setting.pattern, {}).update(setting.fields)
    for section in core.all("addresses"):
        read_addresses(section, reader, imported)
    for section in core.all("queues"):
        read_old_queues(section, reader, imported)
    _note_dead_letters(core, imported)
    _keep_retroactive(found, imported)
    _declare_patterns(found, imported)
    for section in core.all("diverts"):
        read_diverts(section, reader, imported)
    imported.add_routes()
    for section in core.all("security-settings"):
        read_security(section, wildcards, imported)
    return imported


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


def _note_dead_letters(core: Element, imported: Imported) -> None:
    """Say of the queues that were dead letter addresses that nothing fills them any more."""
    named = {
        child.text
        for section in core.all("address-settings")
        for setting in section.all("address-setting")
        for child in setting.all("dead-letter-address", "expiry-address")
    }
    for name in sorted(named & {*imported.queues, *imported.addresses}):
        why = "a queue like any other: dead messages go to the topic ringfaust.dead instead"
        imported.note(Verdict.CHANGED, 0, f"dead letter or expiry queue {name}", why)


def _keep_retroactive(found: list[AddressSetting], imported: Imported) -> None:
    """Give addresses their `retroactive_count`; a pattern of its own if no queue would suffer."""
    for setting in found:
        if not setting.retroactive:
            continue
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
            imported.note(Verdict.NONE, setting.line, about, why)


def _declare_patterns(found: list[AddressSetting], imported: Imported) -> None:
    """Declare the names that Artemis would create at their first use."""
    for setting in found:
        if not setting.creates or setting.pattern in imported.addresses:
            continue
        if not setting.is_multicast:
            imported.queues.setdefault(setting.pattern, {})
            continue
        hidden = [
            name
            for name in imported.queues
            if not is_pattern(name) and Catalog({setting.pattern: {}}, {}).declares(name)
        ]
        if hidden:
            about = f"address-setting {setting.pattern}, default-address-routing-type"
            why = f"the pattern would hide queue {hidden[0]}: declare multicast addresses by name"
            imported.note(Verdict.NONE, setting.line, about, why)
        else:
            imported.addresses.setdefault(setting.pattern, {})
