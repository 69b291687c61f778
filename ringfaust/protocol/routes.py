"""Decode a producer's record into a send: its size, its queue, and what its headers say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final, NamedTuple

from ringfaust.core import limits
from ringfaust.core.commands import Send
from ringfaust.core.create import create
from ringfaust.core.new import new_send
from ringfaust.core.selector.like import like
from ringfaust.errors import ProtocolError
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import FetchedRecord, Headers, Payload, place_of, read_json

_PAYLOAD: Final = Payload

LOG_APPEND_TIME = 1
"""The timestamp_type of a record whose timestamp the broker set."""

PROPERTIES_BYTES = 32_768
"""Longest value of the header of typed properties."""
_REPARTITION_BYTES: Final = 4_000
"""What repartitioning may add to a record: the headers for its queue, source and time."""
_HEADER_BYTES: Final = 8
"""What a stored header takes besides its name and value."""
_TEXT_CHARS = 400
_PLACEHOLDERS = frozenset((h.TOO_MANY_HEADERS, h.UNDECODABLE_CONTENT))
_DELIVERY_MODES = {b"persistent": True, b"non_persistent": False}
_REDRIVES = 1_000_000_000
_DIGITS = 15
"""Most digits of a number in a header."""
_REDRIVE_OF_CHARS = limits.NAME_CHARS + len("/") + len(str(1 << limits.SEQUENCE_BITS))


class Route(NamedTuple):
    """Sends the records of `topic` to the queue that a `RouteTemplate` names."""

    topic: str
    queue: str
    """The template."""


_PLACEHOLDER = re.compile(r"\{(topic|key|header:[^{}\n]+)\}")
_ESCAPED = re.compile("[%_!]")


class RouteTemplate:
    """How a route names a queue: text with `{topic}`, `{key}` and `{header:NAME}`.

    Parts of the record stand in for the placeholders.
    """

    def __init__(self, text: str) -> None:
        """Read a template."""
        self.text = text
        pieces = _PLACEHOLDER.split(text)
        self.texts = pieces[::2]
        """What is before, between and behind the placeholders: one more than these."""
        self.parts = pieces[1::2]
        """The placeholders, without braces."""
        self._first = self.texts[0]
        self._others = list(zip(self.parts, self.texts[1:], strict=True))

    def queue_of(self, record: FetchedRecord) -> str:
        """Name the queue of a record.

        Raises:
            ProtocolError: the record lacks a part, or the part is not UTF-8, or the name is too
                long: it is not put together any further.
        """
        name = self._first
        for part, text in self._others:
            name += _part(record, part) + text
            if len(name) > limits.NAME_CHARS:
                check_name(name)
        return name

    def decode(
        self, record: FetchedRecord, source: str, now_ms: int, most_bytes: int, revision: int | None
    ) -> Send | None:
        """Decode all of a producer's record; `read_send` explains `source` and `now_ms`.

        `revision`: the configuration in use, if the record is of the hop topic; it may be larger
        there.

        Returns:
            None if a route of a later revision has sent the record to the hop topic (R128).

        Raises:
            ProtocolError: it is undecodable.
        """
        is_hop = revision is not None
        refuse_oversized(record, most_bytes + _REPARTITION_BYTES if is_hop else most_bytes)
        queue = self.queue_of(record)
        check_name(queue)
        if revision is not None and revision_of(record) > revision:
            return None
        return read_send(record, queue, source, now_ms, repartitioned=is_hop)

    def around(self, part: str) -> tuple[RouteTemplate, RouteTemplate] | None:
        """What is before and behind a placeholder; None if it is not there, or more than once."""
        if self.parts.count(part) != 1:
            return None
        before, _, behind = self.text.partition(f"{{{part}}}")
        return RouteTemplate(before), RouteTemplate(behind)

    def may_name(self, queue: str) -> bool:
        """Whether any record could be for this queue, whatever its parts are."""
        return like("%".join(_ESCAPED.sub(r"!\g<0>", text) for text in self.texts), "!")(queue)


def _part(record: FetchedRecord, part: str) -> str:
    if part == "topic":
        return record.topic
    if part == "key":
        raw = record.key
    else:
        name = part.removeprefix("header:")
        # As with ringfaust headers, the last of several counts.
        raw = next((value for key, value in reversed(record.headers) if key == name), None)
    if raw is None:
        raise ProtocolError(f"the route needs the record's {part}, which it does not have")
    return _text(part, raw)


def _text(name: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"{name} is not UTF-8: {raw[:40]!r}") from None


def check_name(queue: str) -> None:
    """Check the name of a queue that a record is for.

    Raises:
        ProtocolError: it is empty, too long, or has a NUL.
    """
    if not queue or len(queue) > limits.NAME_CHARS or "\0" in queue:
        raise ProtocolError(
            f"a queue's name has from 1 to {limits.NAME_CHARS} characters: {queue[:80]!r}"
        )


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
        raise _too_many_headers(text) if name == h.TOO_MANY_HEADERS else ProtocolError(text)


def _too_many_headers(count: str) -> ProtocolError:
    return ProtocolError(f"{count} headers; the worker takes at most {limits.HEADERS}", "too_large")


def read_send(
    record: FetchedRecord, queue: str, source: str, now_ms: int, *, repartitioned: bool = False
) -> Send:
    """Decode the send in a record. Its default id is `source`.

    Times count from the broker's timestamp if the topic has LogAppendTime, and otherwise from
    `now_ms`, so a producer with a wrong clock cannot move time (docs/architecture.md#time).

    Args:
        record: the producer's record.
        queue: the name of the queue or address; see `check_name`.
        source: topic/partition/offset of the record.
        now_ms: the time of the step.
        repartitioned: it comes from the repartition topic, so its headers name its original
            source and time. On other topics an earlier application may have left such headers.

    Raises:
        ProtocolError: a ringfaust header is invalid.
    """
    sent_ms = record.timestamp if record.timestamp_type == LOG_APPEND_TIME else now_ms
    key, value, headers = record.key, record.value, record.headers
    size = (len(key) if key else 0) + (len(value) if value else 0)
    if not headers:
        payload = create(_PAYLOAD, key, value, (), source)
        return new_send(queue, source, sent_ms, 4, size, payload)
    kept, ours = _split(headers)
    if not repartitioned and len(ours) == (h.PROPERTIES in ours):  # nothing else to read
        if ours:
            _check_properties(ours[h.PROPERTIES])
        for name, content in kept:
            size += len(name) + (len(content) if content else 0)
        return new_send(queue, source, sent_ms, 4, size, create(_PAYLOAD, key, value, kept, source))
    if repartitioned:
        source = _name(ours, h.SOURCE, limits.ID_CHARS) or source
        sent_ms = _whole(ours, h.TIME_MS, sent_ms, limits.TIME_MS)
    redrives = _whole(ours, h.REDRIVES, 0, _REDRIVES)
    redrive_of = _name(ours, h.REDRIVE_OF, _REDRIVE_OF_CHARS)
    if h.REDRIVES in ours and not redrive_of:  # a producer may have copied it from a record of ours
        kept, redrives = tuple(pair for pair in kept if pair[0] != h.REDRIVES), 0
    size += sum(len(name) + len(value or b"") for name, value in kept)
    if h.PROPERTIES in ours:
        _check_properties(ours[h.PROPERTIES])
    return Send(
        queue,
        _name(ours, h.ID, limits.ID_CHARS) or source,
        sent_ms,
        priority=_whole(ours, h.PRIORITY, 4, limits.PRIORITIES - 1),
        due_ms=_time(ours, h.DELIVER_AT_MS, h.DELAY_MS, sent_ms),
        expires_at_ms=_time(ours, h.EXPIRES_AT_MS, h.TTL_MS, sent_ms, forever=True),
        group=_name(ours, h.GROUP, limits.NAME_CHARS),
        size_bytes=size,
        payload=Payload(key, value, kept, source),
        persistent=_is_persistent(ours.get(h.DELIVERY_MODE, b"persistent")),
        xid=_name(ours, h.XID, limits.NAME_CHARS),
        redrives=redrives,
        redrive_of=redrive_of,
        owner=_name(ours, h.XID_OWNER, limits.NAME_CHARS),
    )


def _split(headers: Headers) -> tuple[Headers, Mapping[str, bytes]]:
    """The headers to pass on, and ringfaust's by name. One of these that is null is absent."""
    found = {name: value for name, value in headers if name.startswith(h.PREFIX)}
    if not found:
        return tuple(headers), found
    ours = {name: value for name, value in found.items() if value is not None}
    kept = tuple(
        pair
        for pair in headers
        if not pair[0].startswith(h.PREFIX) or (pair[0] in h.KEPT and pair[0] in ours)
    )
    return kept, ours


def _is_persistent(raw: bytes) -> bool:
    mode = _DELIVERY_MODES.get(raw)
    if mode is None:
        text = f"{h.DELIVERY_MODE} must be persistent or non_persistent, not {raw[:40]!r}"
        raise ProtocolError(text)
    return mode


def _check_properties(raw: bytes) -> None:
    """Check that the value is a JSON object of scalars, within the length limit."""
    wanted = f"{h.PROPERTIES} must be a JSON object of text, numbers, true, false and null"
    if len(raw) > PROPERTIES_BYTES:
        raise ProtocolError(f"{wanted}, of at most {PROPERTIES_BYTES} bytes, not {len(raw)}")
    try:
        found = read_json(_JSON, raw)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{wanted}, not {raw[:40]!r}: {str(error)[:80]}") from None
    if type(found) is not dict:
        raise ProtocolError(f"{wanted}, not {raw[:40]!r}")
    for name, value in found.items():
        if not is_scalar(value):
            raise ProtocolError(f"{wanted} (up to 64 bits), but {name[:40]!r} is {str(value)[:40]}")


def is_scalar(value: object) -> bool:
    """Whether a value can be a property: text, a boolean, null, or a number that Java can hold."""
    if isinstance(value, float):
        return isfinite(value)
    return -(2**63) <= value < 2**63 if isinstance(value, int) else isinstance(value, str | None)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _name(ours: Mapping[str, bytes], header: str, most: int) -> str:
    raw = ours.get(header)
    if raw is None:
        return ""
    text = _text(header, raw)
    if len(text) > most or "\0" in text:
        raise ProtocolError(f"{header} has at most {most} characters, none of them NUL")
    return text


def _whole(ours: Mapping[str, bytes], header: str, default: int, most: int) -> int:
    raw = ours.get(header)
    if raw is None:
        return default
    if not raw.isdigit() or len(raw) > _DIGITS or int(raw) > most:
        raise ProtocolError(f"{header} must be a whole number from 0 to {most}, not {raw[:40]!r}")
    return int(raw)


def _time(
    ours: Mapping[str, bytes], at: str, after: str, sent_ms: int, *, forever: bool = False
) -> int:
    """Read an absolute time, or a delay from the time of the send; 0 for none (R33, R50).

    A negative one is none. `forever`: so is one beyond the latest time.
    """
    name, from_ms = (at, 0) if at in ours else (after, sent_ms)
    raw = ours.get(name)
    if raw is None or raw.startswith(b"-") and raw[1:].isdigit():
        return 0
    most = limits.TIME_MS - from_ms
    if forever and raw.isdigit() and (len(raw) > _DIGITS or int(raw) > most):
        return 0
    wait_ms = _whole(ours, name, 0, most)
    return from_ms + wait_ms if wait_ms else 0


_JSON: Final = json.JSONDecoder(parse_constant=_no_number)
"""Created once: that takes as long as to decode a few properties."""

_OF_REPARTITION = frozenset((h.QUEUE, h.SOURCE, h.SOURCE_TOPIC_ID, h.TIME_MS, h.REVISION))


def repartition_headers(
    record: FetchedRecord, queue: str, sent_ms: int, topic_id: str, revision: int = 0
) -> list[tuple[str, bytes]]:
    """The headers of a repartitioned record: its own, and its queue, source, topic and time.

    `revision`: of the configuration that has the route; 0: nothing was applied yet.

    Raises:
        ProtocolError: the queue's name is invalid.
    """
    check_name(queue)
    kept = [pair for pair in record.headers if pair[0] not in _OF_REPARTITION]
    source = place_of(record)
    return [
        *kept,
        (h.QUEUE, queue.encode()),
        (h.SOURCE, source.encode()),
        *([(h.SOURCE_TOPIC_ID, topic_id.encode())] if topic_id else []),
        *([(h.REVISION, b"%d" % revision)] if revision else []),
        (h.TIME_MS, b"%d" % sent_ms),
    ]


def revision_of(record: FetchedRecord) -> int:
    """The configuration whose route has sent a record to the hop topic (R128); 0: the first.

    One that cannot be applied is none: its topic would wait for it for ever.
    """
    for name, value in record.headers:
        if name == h.REVISION and value is not None and value.isdigit() and len(value) <= _DIGITS:
            revision = int(value)
            return revision if revision <= limits.REVISION else 0
    return 0


def copied_to(record: FetchedRecord) -> tuple[str, int] | None:
    """What a record on the hop topic says about the partition from which it was copied.

    Returns:
        The partition, as `copied_key` names it, and the offset after the record there; None if the
        record does not say it: an earlier version has written it, or a stranger.
    """
    ours = dict(record.headers)
    topic_id = (ours.get(h.SOURCE_TOPIC_ID) or b"").decode(errors="replace")
    source = (ours.get(h.SOURCE) or b"").decode(errors="replace")
    where, _, offset = source.rpartition("/")
    key = copied_key(where, topic_id)
    if len(key) > limits.COPIED_CHARS or not key.isascii() or len(offset) > _DIGITS:
        return None
    if not (topic_id and where and offset.isdecimal()):
        return None
    return key, int(offset) + 1


def copied_key(where: str, topic_id: str) -> str:
    """The name of a partition, given as topic/partition, under which a position in it is kept.

    No topic has such a name.
    """
    return f"{where}/{topic_id}"


def copied_keys(positions: Iterable[str]) -> list[str]:
    """Those of the names of positions that are of copied partitions."""
    return [name for name in positions if "/" in name]
