"""How a dead or evicted message becomes a producer's record again (R43).

The record keeps its key, value and headers, and its old id, priority and group. It loses its times:
ttl and delay do not apply a second time. A counter says how often it was redriven, and a queue
refuses a message that exceeds its `max_redrives`. Queue and sequence of the lost message prove the
redrive to the dedup window of that queue (R119). The commands `redrive` and `spark redrive`
both follow these rules.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringfaust.core.catalog import Catalog
from ringfaust.errors import ProtocolError
from ringfaust.protocol import headers as h
from ringfaust.protocol.cloud_events import without_attributes
from ringfaust.protocol.records import FetchedRecord, Headers, InRecord
from ringfaust.protocol.routes import RouteTemplate

QUEUE_PART = f"header:{h.QUEUE}"
"""The placeholder that a route has for the header."""


def message_headers(headers: Headers) -> list[tuple[str, bytes]]:
    """Return the headers that belong to the message: the producer's, and of ours `headers.KEPT`."""
    theirs = without_attributes(headers)
    return [pair for pair in theirs if not pair[0].startswith(h.PREFIX) or pair[0] in h.KEPT]


def redriven_headers(headers: Headers, queue_header: str) -> Headers:
    """Return the headers of the redriven record.

    Args:
        headers: of the dead or evicted record.
        queue_header: value of the header that names the queue; empty if the route reads none.
    """
    ours = dict(headers)
    redriven = [pair for pair in message_headers(headers) if pair[0] != h.REDRIVES]
    redriven += [(h.ID, ours[h.ID]), (h.PRIORITY, ours[h.PRIORITY])]
    if h.GROUP in ours:
        redriven.append((h.GROUP, ours[h.GROUP]))
    if queue_header:
        redriven.append((h.QUEUE, queue_header.encode()))
    redriven.append((h.REDRIVES, b"%d" % (int(ours.get(h.REDRIVES, b"0")) + 1)))
    redriven.append((h.REDRIVE_OF, ours[h.QUEUE] + b"/" + ours[h.SEQUENCE]))
    return redriven


def queue_header_for(topic: str, template: str, record: InRecord, queue: str) -> str | None:
    """Return the value that `ringfaust-queue` needs for the route to lead the record to the queue.

    A dead or evicted record has lost that header, but everything else in the template is known.

    Args:
        topic: the route's topic.
        template: the route's template of the queue's name.
        record: the dead or evicted record.
        queue: the queue that the record has to reach.

    Returns:
        Empty if the route leads there without the header; None if it cannot lead there.
    """
    headers = message_headers(record.headers)
    read = FetchedRecord(topic, key=record.key, value=record.value, headers=headers)
    route = RouteTemplate(template)
    try:
        if (around := route.around(QUEUE_PART)) is None:
            return "" if route.queue_of(read) == queue else None
        before, after = [each.queue_of(read) for each in around]
    except ProtocolError:
        return None
    fits = queue.startswith(before) and queue.endswith(after)
    if not fits or len(queue) <= len(before) + len(after):
        return None
    return queue[len(before) : len(queue) - len(after)]


def missing_payload(catalogs: Iterable[Catalog], queue: str) -> str:
    """Return the `evicted_payload` for which evicted records of the queue lack the payload, if any.

    `catalogs`: what is declared now, and was when the records were written. A record that has a
    value is whole in any case.
    """
    forms = [each.spec(queue, {}).evicted_payload for each in catalogs]
    return next((form for form in forms if form != "full"), "")
