"""`addresses` of broker.xml, and the `queues` of older files."""

from __future__ import annotations

from collections.abc import Mapping

from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.selector import check_selector
from ringfaust.core.settings import QueueSpec
from ringfaust.errors import BadSelector
from ringfaust.importers.artemis_filters import UnknownField, translated
from ringfaust.importers.artemis_settings import set_consumers, set_ring_size
from ringfaust.importers.artemis_values import note_unknown, placeholder, switch, whole
from ringfaust.importers.imported import Fields, Imported, Verdict
from ringfaust.importers.xml_file import Element

_OTHERS = {
    "user": (None, "Kafka's ACLs say who may do what"),
    "purge-on-no-consumers": ("false", "messages stay when the last consumer leaves"),
    "group-rebalance": ("false", "a group stays with its consumer until that consumer detaches"),
    "group-rebalance-pause-dispatch": ("false", "a group stays with its consumer"),
    "group-buckets": ("-1", "groups are not hashed; max_groups bounds what is remembered"),
    "group-first-key": (None, "a delivery does not say that it is the first of its group"),
    "last-value": ("false", "a ring of one for each key keeps last values: a route with {key}"),
    "last-value-key": (None, "a ring of one for each key keeps last values: a route with {key}"),
    "non-destructive": ("false", "a message leaves its queue when it is acked"),
    "consumers-before-dispatch": ("0", "pause the queue until its consumers are there"),
    "delay-before-dispatch": ("-1", "pause the queue until its consumers are there"),
    "enabled": ("true", "pause the queue: `ringfaust queue pause`"),
}


def read_addresses(section: Element, defaults: Catalog, imported: Imported) -> None:
    """Read `addresses`: each becomes a queue or an address. `defaults`: the address settings."""
    note_unknown(section, "addresses", imported, children=("address",))
    for address in section.all("address"):
        about = f"address {address.attributes.get('name', '')}"
        note_unknown(
            address, about, imported, children=("anycast", "multicast"), attributes=("name",)
        )
        for part in address.all("anycast", "multicast"):
            note_unknown(part, f"{about}, {part.tag}", imported, children=("queue",))
    for address in _merged(section):
        name = address.attributes.get("name", "")
        if not imported.is_name(name, address.line, f"address {name}", patterns=False):
            continue
        default = defaults.spec(name, {})
        anycast = [queue for part in address.all("anycast") for queue in part.all("queue")]
        multicast = list(address.all("multicast"))
        subscribed = [queue for part in multicast for queue in part.all("queue")]
        if multicast or len(anycast) > 1 or any(_needs_address(name, queue) for queue in anycast):
            _as_address(name, address, (anycast, subscribed), default, imported)
        elif anycast or address.first("anycast"):
            fields = imported.queues.setdefault(name, {})
            imported.note(Verdict.TAKEN, address.line, f"address {name}, anycast", f"queue {name}")
            for queue in anycast:
                _queue_fields(name, queue, fields, default, imported)
        else:
            imported.addresses.setdefault(name, {})
            why = f"address {name}, whose queues are created by subscribers"
            imported.note(Verdict.TAKEN, address.line, f"address {name}", why)


def _merged(section: Element) -> list[Element]:
    """Return the addresses; what the file says of one in several places is put together."""
    found: dict[str, Element] = {}
    for child in section.all("address"):
        name = child.attributes.get("name", "")
        if name in found:
            found[name].children += child.children
        else:
            found[name] = child
    return list(found.values())


def read_old_queues(section: Element, defaults: Catalog, imported: Imported) -> None:
    """Read the `queues` of an older broker.xml, which name their address."""
    note_unknown(section, "queues", imported, children=("queue",))
    named = [(queue, queue.attributes.get("name", "")) for queue in section.all("queue")]
    placed = [(queue, name, queue.text_of("address") or name) for queue, name in named]
    several = {address for queue, name, address in placed if _needs_address(address, queue)}
    for queue, name, address in placed:
        about = f"queue {name} of address {address}"
        if not (
            imported.is_name(name, queue.line, about, patterns=False)
            and imported.is_name(address, queue.line, about, patterns=False)
        ):
            continue
        if address not in several and address not in imported.addresses:
            fields = imported.queues.setdefault(name, {})
            imported.note(Verdict.TAKEN, queue.line, about, f"queue {name}")
        else:
            fields = imported.subscriptions(address).setdefault(name, {})
            imported.addresses[address].pop("routing", None)
            why = f"queue {name} of address {address}: consumers attach {address}::{name}"
            imported.note(Verdict.TAKEN, queue.line, about, why)
        _queue_fields(name, queue, fields, defaults.spec(address, {}), imported)


def _needs_address(address: str, queue: Element) -> bool:
    """Only the queue of an address has a name of its own, and a selector."""
    return queue.attributes.get("name") != address or queue.first("filter") is not None


def _as_address(
    name: str,
    address: Element,
    queues: tuple[list[Element], list[Element]],
    default: QueueSpec,
    imported: Imported,
) -> None:
    """Declare an address with its queues: those of anycast, and those of multicast."""
    anycast, subscribed = queues
    declared = imported.addresses.setdefault(name, {})
    if anycast and not subscribed and len(anycast) == 1:
        declared["routing"] = "anycast"
        verdict, why = Verdict.TAKEN, f"address {name} with one queue"
    elif anycast and subscribed:
        verdict, why = Verdict.CHANGED, f"address {name}: each of its queues gets every message"
    elif anycast:
        verdict = Verdict.CHANGED
        why = f"address {name}: each of its queues gets every message, not one of them in turn"
    else:
        verdict, why = Verdict.TAKEN, f"address {name}, which copies to each of its queues"
    imported.note(verdict, address.line, f"address {name}", why)
    for queue in (*anycast, *subscribed):
        own = queue.attributes.get("name", "")
        about = f"queue {own} of address {name}"
        if not imported.is_name(own, queue.line, about, patterns=False):
            continue
        fields = imported.subscriptions(name).setdefault(own, {})
        why = f"consumers attach {name}::{own}"
        imported.note(Verdict.TAKEN, queue.line, about, why)
        _queue_fields(own, queue, fields, default, imported)


def _queue_fields(
    name: str, queue: Element, fields: Fields, default: QueueSpec, imported: Imported
) -> None:
    """Read the attributes and children of a queue. `default`: what its address sets."""
    given = [(key, queue, value) for key, value in queue.attributes.items() if key != "name"]
    given += [
        (child.tag, child, child.text) for child in queue.children
        if child.tag not in ("address", "filter")
    ]  # fmt: skip
    for child in queue.children:
        attributes = ("string",) if child.tag == "filter" else ()
        about = f"queue {name}, {child.tag}"
        note_unknown(child, about, imported, attributes=attributes)
    known = {key: text for key, _, text in given if placeholder(text) is None}
    for key, element, text in given:
        about = f"queue {name}, {key} = {text}"
        if (unknown := placeholder(text)) is not None:
            why = f"the broker's property {unknown} is not known here: set it by hand"
            imported.note(Verdict.NONE, element.line, about, why)
        elif key in ("exclusive", "max-consumers"):
            _consumers(known, element.line, about, fields, default=default, imported=imported)
        else:
            _queue_field(key, text, element.line, about, fields=fields, imported=imported)
    for selector in queue.all("filter"):
        read_filter(f"queue {name}", selector, fields, imported)
    if default.ring_size != -1 and "ring_size" not in fields:
        about = f"queue {name}, no ring-size"
        more = (
            f", because Artemis ignores the default-ring-size of {default.ring_size} for a queue "
            "that its file declares"
        )
        imported.set(fields, "ring_size", -1, queue.line, about, more=more)


def _consumers(
    known: Mapping[str, str], line: int, about: str, fields: Fields, *, default: QueueSpec,
    imported: Imported,
) -> None:  # fmt: skip
    """Whether a queue is exclusive, and how many consumers it has: each needs the other."""
    is_exclusive = by_default = default.max_backup_consumers > 0
    if "exclusive" in known:
        is_exclusive = switch(imported, line, "exclusive", known["exclusive"])
    most = -1 if by_default else default.max_active_consumers
    if "max-consumers" in known:
        most = whole(imported, line, "max-consumers", known["max-consumers"])
    set_consumers(
        imported, fields, line, about,
        is_exclusive=is_exclusive, most=most, replaces=by_default,
    )  # fmt: skip


def _queue_field(
    key: str, text: str, line: int, about: str, *, fields: Fields, imported: Imported
) -> None:
    if key == "ring-size":
        set_ring_size(imported, fields, whole(imported, line, key, text), line, about)
    elif key == "durable" and not switch(imported, line, key, text):
        why = "the queue and its persistent messages survive a restart"
        imported.note(Verdict.CHANGED, line, about, why)
    elif key == "durable":
        imported.note(Verdict.TAKEN, line, about, "nothing to do")
    else:
        imported.note_other(_OTHERS, key, text, line, about)


def read_filter(owner: str, element: Element, fields: Fields, imported: Imported) -> None:
    """Read a filter into the selector of an address' queue."""
    text = element.attributes.get("string", "") or element.text
    if len(text) > limits.SELECTOR_CHARS:
        why = f"longer than {limits.SELECTOR_CHARS} characters, so the queue gets every message"
        imported.note(Verdict.NONE, element.line, f"{owner}, filter = {text[:100]}…", why)
        return
    about = f"{owner}, filter = {text}"
    if not text:
        imported.note(Verdict.TAKEN, element.line, about, "the queue gets every message")
        return
    if unknown := placeholder(text):
        why = f"the property {unknown} is not known here, so the queue gets every message"
        imported.note(Verdict.NONE, element.line, about, why)
        return
    try:
        selector = translated(text)
    except UnknownField as unknown:
        why = f"{unknown} has no equivalent, so the queue gets every message"
        imported.note(Verdict.NONE, element.line, about, why)
        return
    try:
        check_selector(selector)
        QueueSpec().with_fields({"selector": selector})
    except BadSelector as error:
        read = f", read as {selector}" if selector != text else ""
        why = f"not a selector here{read}, so the queue gets every message: {error.advice}"
        imported.note(Verdict.NONE, element.line, about, why)
        return
    fields["selector"] = selector
    verdict = Verdict.TAKEN if selector == text else Verdict.CHANGED
    imported.note(verdict, element.line, about, f"selector: {selector}")
