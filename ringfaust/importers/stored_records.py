"""A stored message of Artemis as a producer's record: which topic, which headers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from ringfaust.config.queues import QueuesConfig
from ringfaust.config.worker import WorkerConfig
from ringfaust.core import limits
from ringfaust.core.address import queue_name
from ringfaust.importers.artemis_export import Scalar, StoredMessage
from ringfaust.importers.imported import CannotImport
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import FetchedRecord, OutgoingRecord
from ringfaust.protocol.redrive import queue_header_for

DUE = "_AMQ_SCHED_DELIVERY"
GROUPS = ("_AMQ_GROUP_ID", "JMSXGroupID")
_INTERNAL = ("_AMQ_", "__AMQ", "__HDR", "JMSXGroup")
_PROPERTIES_BYTES = 32_768


@dataclass(frozen=True, slots=True)
class _Place:
    topic: str
    queue_header: str


class Places:
    """Finds the topic that leads to a queue, with one look for each queue."""

    def __init__(self, path: Path, worker: WorkerConfig, queues: QueuesConfig) -> None:
        self._path = path
        self._catalog = queues.catalog()
        self._routes = [
            route for route in queues.routes
            if worker.partitions == 1 or route.needs_hop(worker.partitions)
        ]  # fmt: skip
        self._known: dict[str, _Place] = {}

    def record(self, message: StoredMessage, queue: str, address: str) -> OutgoingRecord:
        """Return the record of a message in a queue.

        All go to one partition: the hop keeps the order of records from one partition.

        Raises:
            CannotImport: the configuration does not have the queue, or no route to it.
        """
        place = self._known.get(queue)
        if place is None:
            place = self._known[queue] = self._find(message.line, queue, address)
        headers = _headers(message)
        if place.queue_header:
            headers.append((h.QUEUE, place.queue_header.encode()))
        return OutgoingRecord(place.topic, message.body, headers=headers, partition=0)

    def _find(self, line: int, queue: str, address: str) -> _Place:
        ours = queue_name(address, queue)
        if not self._catalog.declares(ours) and (
            self._catalog.names(queue) or (address == queue and self._catalog.declares(queue))
        ):
            ours = queue
        if not self._catalog.declares(ours):
            missing = queue if address == queue else ours
            text = (
                f"queue {missing[:100]!r} is not declared in queues.yaml: declare it, or import "
                "broker.xml first, and run the same command again"
            )
            raise CannotImport(self._path, line, text)
        for route in self._routes:
            header = queue_header_for(route.topic, route.queue, FetchedRecord(), ours)
            if header is not None:
                return _Place(route.topic, header)
        text = (
            f"no route leads to queue {ours[:100]!r} through the hop: add {{topic: messages, "
            f'queue: "{{header:{h.QUEUE}}}", hop: always}} to `routes`'
        )
        raise CannotImport(self._path, line, text)


def _headers(message: StoredMessage) -> list[tuple[str, bytes]]:
    headers = [
        (h.ID, message.id[: limits.ID_CHARS].encode()),
        (h.PRIORITY, b"%d" % message.priority),
        ("artemis-type", message.type.encode()),
        ("artemis-timestamp", b"%d" % message.timestamp_ms),
    ]
    if message.expires_at_ms:
        headers.append((h.EXPIRES_AT_MS, b"%d" % min(message.expires_at_ms, limits.TIME_MS)))
    due = message.properties.get(DUE)
    if isinstance(due, int) and due > 0:
        headers.append((h.DELIVER_AT_MS, b"%d" % min(due, limits.TIME_MS)))
    for name in GROUPS:
        group = message.properties.get(name)
        if isinstance(group, str) and 0 < len(group) <= limits.NAME_CHARS:
            headers.append((h.GROUP, group.encode()))
            break
    return headers + _property_headers(message.properties)


def _property_headers(properties: dict[str, Scalar]) -> list[tuple[str, bytes]]:
    """Return typed properties as one JSON object, and what JSON cannot hold as headers."""
    own = {
        name: value for name, value in properties.items()
        if value is not None and not name.startswith((*_INTERNAL, h.PREFIX))
    }  # fmt: skip
    typed = {name: value for name, value in own.items() if not _is_plain(value)}
    text = json.dumps(typed, ensure_ascii=False).encode()
    if len(text) > _PROPERTIES_BYTES:
        typed, text = {}, b"{}"
    headers = [(h.PROPERTIES, text)] if typed else []
    return headers + [(name, _bytes(value)) for name, value in own.items() if name not in typed]


def _is_plain(value: Scalar) -> bool:
    return isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value))


def _bytes(value: Scalar) -> bytes:
    if isinstance(value, bool):  # as Java writes it
        return b"true" if value else b"false"
    return value if isinstance(value, bytes) else str(value).encode()
