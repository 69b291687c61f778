"""Records that cannot be used: what is too large to be, and the event that tells of one.

The record itself goes to the dead topic, see `output.undecodable_record`.
"""

from __future__ import annotations

import json

from ringfaust.core import limits
from ringfaust.errors import ProtocolError
from ringfaust.protocol.headers import UNREADABLE
from ringfaust.protocol.records import InRecord

_HEADER_BYTES = 8
"""What a header weighs in the state beside its name and value."""
_TEXT_CHARS = 400


def refuse_oversized(record: InRecord, most_bytes: int) -> None:
    """Refuse what could not be read, or could not be written and would stop its partition for good.

    Raises:
        ProtocolError: the record is too large, or a stand-in for one that could not be decoded.
    """
    size = len(record.value or b"") + len(record.key or b"")
    headers = record.headers
    if headers:
        if len(headers) > limits.HEADERS:
            text = f"{len(headers)} headers; the worker takes at most {limits.HEADERS}"
            raise ProtocolError(text, "too_large")
        size += sum(len(name) + len(value or b"") + _HEADER_BYTES for name, value in headers)
    if size > most_bytes:
        raise ProtocolError(f"{size} bytes; the worker takes at most {most_bytes}", "too_large")
    if headers and headers[0][0] == UNREADABLE:
        # A producer may have put it there too, with whatever in it and behind it.
        raise ProtocolError((headers[0][1] or b"").decode(errors="replace")[:_TEXT_CHARS])


def undecodable_line(record: InRecord, error: ProtocolError, step: int, now_ms: int) -> str:
    """The line of the events topic."""
    line = {
        "step": step, "event": "unreadable", "reason": error.reason, "text": str(error),
        "time_ms": now_ms, "by": f"{record.topic}/{record.partition}/{record.offset}",
    }  # fmt: skip
    return json.dumps(line, separators=(",", ":"))
