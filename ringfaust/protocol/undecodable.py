"""Records that cannot be used: the size limit, and the event for an undecodable record.

The record itself goes to the dead topic: see `outputs.undecodable_record`.
"""

from __future__ import annotations

import json

from ringfaust.core import limits
from ringfaust.errors import ProtocolError
from ringfaust.protocol.headers import TOO_MANY_HEADERS, UNDECODABLE_CONTENT
from ringfaust.protocol.records import FetchedRecord, place_of

_HEADER_BYTES = 8
"""What a stored header takes besides its name and value."""
_TEXT_CHARS = 400
_PLACEHOLDERS = frozenset((TOO_MANY_HEADERS, UNDECODABLE_CONTENT))


def refuse_oversized(record: FetchedRecord, most_bytes: int) -> None:
    """Refuse a record that could not be read, or whose outputs Kafka would refuse for ever.

    Raises:
        ProtocolError: the record is too large, or replaces one that the client could not read.
    """
    key, value, headers = record.key, record.value, record.headers
    size = (len(key) if key else 0) + (len(value) if value else 0)
    if headers:
        if len(headers) > limits.HEADERS:
            raise _too_many_headers(str(len(headers)))
        for name, content in headers:  # `sum` of a generator takes three times as long
            size += len(name) + (len(content) if content else 0) + _HEADER_BYTES
    if size > most_bytes:
        raise ProtocolError(f"{size} bytes; the worker takes at most {most_bytes}", "too_large")
    if headers and headers[0][0] in _PLACEHOLDERS:
        name, content = headers[0]
        # A producer may have set this header too, to any value.
        text = (content or b"").decode(errors="replace")[:_TEXT_CHARS]
        raise _too_many_headers(text) if name == TOO_MANY_HEADERS else ProtocolError(text)


def _too_many_headers(count: str) -> ProtocolError:
    return ProtocolError(f"{count} headers; the worker takes at most {limits.HEADERS}", "too_large")


def undecodable_line(
    record: FetchedRecord, source: str, error: ProtocolError, step: int, now_ms: int
) -> str:
    """The record's line on the events topic. `source`: the producer's record."""
    by = place_of(record)
    line = {
        "step": step, "event": "unreadable", **({"source": source} if source != by else {}),
        "reason": error.reason, "text": str(error), "time_ms": now_ms, "by": by,
    }  # fmt: skip
    return json.dumps(line, separators=(",", ":"))
