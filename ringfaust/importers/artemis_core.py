"""The rest of broker.xml: settings of the broker itself, none of which a queue has."""

from __future__ import annotations

from collections.abc import Iterator

from ringfaust.importers.artemis_values import placeholder, whole
from ringfaust.importers.imported import Fields, Imported, Verdict
from ringfaust.importers.xml_file import Element

HANDLED = frozenset(
    {
        "addresses", "address-settings", "queues", "diverts", "security-settings",
        "wildcard-addresses", "literal-match-markers",
    }
)  # fmt: skip
"""Elements that other modules read."""

_STORAGE = "Kafka stores the messages: its topics' settings and the brokers' disks"
_NETWORK = "clients connect to the Kafka brokers"
_CLUSTER = "Kafka replicates the topics, and workers share the partitions"
_PLUGIN = "no code runs in the worker; read its topics instead"
_USERS = "Kafka authenticates users, and its ACLs say what each may do"
_METRICS = "set `web.enabled` in worker.yaml for metrics and health"
_PAGING = "what does not fit stays in its Kafka topic"
_HEALTH = "the worker serves its health if `web.enabled` is true"

_PREFIXES = {
    "journal-": _STORAGE, "paging-": _STORAGE, "bindings-": _STORAGE, "large-message": _STORAGE,
    "create-": _STORAGE, "persist": _STORAGE, "store": _STORAGE, "disk-": _STORAGE,
    "max-disk": _STORAGE, "min-disk": _STORAGE, "page-": _PAGING, "purge-page": _PAGING,
    "read-whole-page": _PAGING, "global-max": "max_messages and max_bytes limit each queue",
    "memory-": _METRICS, "metrics": _METRICS, "message-counter": _METRICS, "jmx-": _METRICS,
    "server-dump": _METRICS, "acceptor": _NETWORK, "connector": _NETWORK, "network-check": _NETWORK,
    "remoting-": _PLUGIN, "broker-plugin": _PLUGIN, "cluster-": _CLUSTER, "ha-policy": _CLUSTER,
    "broadcast-": _CLUSTER, "discovery-": _CLUSTER, "federation": _CLUSTER, "bridge": _CLUSTER,
    "broker-connection": _CLUSTER, "connection-router": _CLUSTER, "mirror-": _CLUSTER,
    "grouping-handler": "a group stays with its consumer on whichever worker",
    "security-": _USERS, "authentication-": _USERS, "authorization-": _USERS,
    "populate-validated": _USERS, "reject-empty": _USERS, "password-codec": _USERS,
    "mask-password": _USERS, "view-permission": _USERS, "management-": "`ringfaust` operates it",
    "critical-analyzer": _HEALTH, "thread-pool": "not needed", "scheduled-thread": "not needed",
    "graceful-": "a worker that stops finishes its batch", "name": "`application` in worker.yaml",
    "transaction-timeout": "consumer_timeout_ms ends the transactions of a silent client",
    "id-cache-size": "dedup_window_ms of a queue refuses repeated ids for a time",
    "max-redelivery-records": "every attempt is stored",
    "mqtt-": "there is no MQTT; a bridge writes to Kafka", "resource-limit": "Kafka has quotas",
}  # fmt: skip
_CHILDREN = frozenset(
    {
        "acceptors", "connectors", "bridges", "federations", "broadcast-groups",
        "discovery-groups", "cluster-connections", "broker-connections", "broker-plugins",
        "connection-routers", "connector-services", "resource-limit-settings", "metrics",
        "remoting-incoming-interceptors", "remoting-outgoing-interceptors",
    }
)  # fmt: skip
"""Elements that are lists: each entry gets a line."""
_SECRET = ("password", "codec")


def read_core(core: Element, imported: Imported) -> None:
    """Record a finding for each setting of the broker, and take over what has an equivalent."""
    for element in core.children:
        if element.tag in HANDLED:
            continue
        for each in _entries(element):
            _read(element, each, imported)


def _entries(element: Element) -> Iterator[Element]:
    is_list = element.tag in _CHILDREN and element.children
    yield from element.children if is_list else [element]


def _read(element: Element, each: Element, imported: Imported) -> None:
    name = each.attributes.get("name") or each.attributes.get("class-name") or ""
    about = each.tag if each is element else f"{element.tag}, {each.tag} {name}".strip()
    shown = each.text.partition("?")[0]  # what follows may be a password of a key store
    if shown and not each.children and not any(word in about for word in _SECRET):
        about += f" = {shown[:100]}"
    if each.tag == "message-expiry-scan-period":
        why = "tick_ms in worker.yaml; a message expires at the next tick"
        imported.note(Verdict.CHANGED, each.line, about, why)
    elif each.tag == "connection-ttl-override":
        _time_to_live(each, about, imported)
    else:
        why = next((text for start, text in _PREFIXES.items() if element.tag.startswith(start)), "")
        why = why or "a setting of the broker itself"
        imported.note(Verdict.NONE, each.line, about, why)


def _time_to_live(each: Element, about: str, imported: Imported) -> None:
    if (unknown := placeholder(each.text)) is not None:
        imported.note(Verdict.NONE, each.line, about, f"the property {unknown} is not known here")
        return
    number = whole(imported, each.line, each.tag, each.text)
    if number < 1:
        imported.note(Verdict.TAKEN, each.line, about, "nothing to do")
        return
    fields: Fields = imported.settings.setdefault("#", {})
    imported.set(
        fields, "consumer_timeout_ms", number, each.line, about, verdict=Verdict.CHANGED,
        more=": a consumer that is silent for so long is detached",
    )  # fmt: skip
