"""CloudEvents 1.0 attributes of evicted and dead records, in the binary mode of the Kafka binding.

They repeat what ringfaust's own headers say, for programs that understand CloudEvents. They are
added only if `cloud_events` is set in worker.yaml. A record whose producer has made it a CloudEvent
keeps the producer's attributes and gets none.
"""

from __future__ import annotations

from urllib.parse import quote

from ringfaust.protocol import headers as h
from ringfaust.protocol.record_batches import RecordBuffer
from ringfaust.protocol.records import Headers, OutRecord
from ringfaust.times import time_text

SPEC_VERSION, ID, SOURCE, TYPE = "ce_specversion", "ce_id", "ce_source", "ce_type"
TIME, SUBJECT = "ce_time", "ce_subject"
ATTRIBUTES = (SPEC_VERSION, ID, SOURCE, TYPE, TIME, SUBJECT)
"""In the order in which they end a record."""
EVICTED, DEAD, UNDECODABLE = "ringfaust.evicted", "ringfaust.dead", "ringfaust.undecodable"


class CloudEvents:
    """A buffer of evicted or dead records that makes each a CloudEvent."""

    def __init__(self, buffer: RecordBuffer, application: str, type_: str) -> None:
        """Wrap a buffer. `type_` is the type of messages; undecodable records have their own."""
        self._buffer = buffer
        self._application = application
        self._type = type_

    def append(self, record: OutRecord, /) -> None:
        """Add a record."""
        self._buffer.append(cloud_event(record, self._application, self._type))

    def __len__(self) -> int:
        return len(self._buffer)


def cloud_event(record: OutRecord, application: str, type_: str) -> OutRecord:
    """Return an output record with the attributes, which follow all other headers."""
    key, value, headers = record
    named = dict(headers)
    if SPEC_VERSION in named:
        return record
    origin, source = named[h.SOURCE].decode(), f"/ringfaust/{quote(application)}"
    time = time_text(int(named[h.TIME_MS])).replace(" ", "T")
    if is_undecodable(headers):
        texts = ("1.0", origin, source, UNDECODABLE, time, origin)
    else:
        queue, number = named[h.QUEUE].decode(), named[h.SEQUENCE].decode()
        source = f"{source}/{quote(queue, safe='')}"
        texts = ("1.0", f"{origin}/{number}", source, type_, time, named[h.ID].decode())
    attributes = zip(ATTRIBUTES, map(str.encode, texts), strict=True)
    return key, value, [*headers, *attributes]


def without_attributes(headers: Headers) -> Headers:
    """Return the headers of an output record without what `cloud_event` has added.

    Ringfaust's headers end a record, so attributes at its end are ours.
    """
    is_ours = bool(headers) and headers[-1][0] == SUBJECT
    return headers[: -len(ATTRIBUTES)] if is_ours else headers


def is_undecodable(headers: Headers) -> bool:
    """Whether the headers are those of an undecodable record in the dead topic, not of a message.

    All but the last ones are its producer's, whatever their names.
    """
    return without_attributes(headers)[-1][0] == h.TIME_MS
