"""The messages in an XML file that `artemis data exp` has written, one after another.

The file is read as a stream, so its size does not matter. A message is bounded by `most_bytes`.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl

from ringfaust.importers.imported import CannotImport
from ringfaust.importers.xml_file import parse

_DEPTH = 10
_NAMES = 100_000
"""Most queues in one file."""
_PROPERTIES = 10_000
"""Most properties of a message, and most queues that have it."""

_COMPRESSED = "_AMQ_LARGE_COMPRESSED"
"""The property of a message whose body a client has compressed (`compressLargeMessages`)."""
_NULL = "_AMQ_NULL"
"""How an absent value is written."""

Scalar = str | int | float | bool | bytes | None


@dataclass(slots=True)
class StoredMessage:
    """A message as Artemis has stored it."""

    line: int
    id: str
    """The JMS message id, or else the number that Artemis gave it."""
    priority: int
    timestamp_ms: int
    expires_at_ms: int
    """0: never."""
    type: str
    """text, bytes, map, object, stream, default or embedded."""
    properties: dict[str, Scalar] = field(default_factory=dict)
    queues: list[str] = field(default_factory=list)
    body: bytes | None = b""
    """None: it is larger than what is read, or a text message without a text."""
    is_oversized: bool = False


class ArtemisExport:
    """Reads an export. Iterating yields the messages in the order of the file.

    Raises:
        CannotImport: the file is not such an export; it names the line.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """`most_bytes`: a body that is certainly larger is not kept."""
        self._path = path
        self._handler = _Handler(path, most_bytes)
        self.addresses = self._handler.addresses
        """The address of each queue, by the queue's name. They precede the messages."""

    def __iter__(self) -> Iterator[StoredMessage]:
        """Yield the messages."""
        with self._path.open("rb") as file:
            for _ in parse(self._path, file, self._handler):
                while self._handler.done:
                    yield self._handler.done.popleft()
        if not self._handler.is_export:
            raise CannotImport(self._path, 1, "is empty")


class _Handler(ContentHandler):
    """Collects one message at a time; those that are complete are in `done`."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        super().__init__()
        self._path = path
        self._most_bytes = 2 * most_bytes + 4_096  # a text takes half of what Artemis stores
        self._open: list[str] = []
        self._message: StoredMessage | None = None
        self._body: list[str] = []
        self._body_chars = 0
        self._locator: Any  # the base class sets it: it knows the line
        self.addresses: dict[str, str] = {}
        self._renamed: dict[str, str] = {}
        self.done: deque[StoredMessage] = deque()
        self.is_export = False

    def startElement(self, name: str, attrs: AttributesImpl) -> None:  # noqa: N802 - SAX names it
        """Read the attributes of an element."""
        if not self._open and name != "activemq-journal":
            raise self._refused(f"<{name[:60]}> is not an export, which begins <activemq-journal>")
        self.is_export = True
        self._open.append(name)
        if len(self._open) > _DEPTH:
            raise self._refused(f"elements nest deeper than {_DEPTH} levels")
        if name == "queue-binding" and "name" in attrs and len(self.addresses) < _NAMES:
            self.addresses[attrs["name"]] = attrs.get("address", attrs["name"])
        elif name == "binding" and "queue-name" in attrs and len(self.addresses) < _NAMES:
            queue = attrs["queue-name"]  # as Artemis 1 wrote it, with prefixes of JMS
            self._renamed[queue] = _without_prefix(queue)
            self.addresses[_without_prefix(queue)] = _without_prefix(attrs.get("address", queue))
        elif name == "message":
            self._message = StoredMessage(
                self._locator.getLineNumber(),
                _jms_id(attrs.get("user-id", "")) or attrs.get("id", ""),
                min(max(self._whole(attrs, "priority", 4), 0), 9),
                max(self._whole(attrs, "timestamp", 0), 0),
                max(self._whole(attrs, "expiration", 0), 0),
                attrs.get("type", "default"),
            )
        elif self._message is not None:
            self._part(self._message, name, attrs)

    def _part(self, message: StoredMessage, name: str, attrs: AttributesImpl) -> None:
        if len(message.properties) + len(message.queues) > _PROPERTIES:
            raise self._refused(f"message {message.id} has more than {_PROPERTIES} properties")
        if name == "property" and "name" in attrs:
            message.properties[attrs["name"]] = self._scalar(attrs)
        elif name == "queue" and "name" in attrs:
            message.queues.append(self._renamed.get(attrs["name"], attrs["name"]))
        elif name == "body":
            self._body, self._body_chars = [], 0

    def _scalar(self, attrs: AttributesImpl) -> Scalar:
        kind, text = attrs.get("type", "string"), attrs.get("value", "")
        try:
            if kind in ("byte", "short", "integer", "long"):
                return int(text[:20])
            if kind in ("float", "double"):
                return float(text[:60])
            if kind == "bytes":
                return None if text == _NULL else _bytes(text)
        except (ValueError, binascii.Error):
            raise self._refused(f"{text[:60]!r} is not a property of type {kind}") from None
        if kind == "boolean":
            return text == "true"
        return None if text == _NULL else text

    def _whole(self, attrs: AttributesImpl, name: str, default: int) -> int:
        text = attrs.get(name, str(default))
        try:
            return int(text[:20])
        except ValueError:
            raise self._refused(f"{name} = {text[:60]!r} is not a whole number") from None

    def characters(self, content: str) -> None:
        """Collect the body."""
        if self._message is None or not self._open or self._open[-1] != "body":
            return
        self._body_chars += len(content)
        if self._body_chars > self._most_bytes * 4 // 3:
            self._message.is_oversized = True
            self._body.clear()
        else:
            self._body.append(content)

    def endElement(self, name: str) -> None:  # noqa: N802
        """Complete a message."""
        self._open.pop()
        if self._message is None:
            return
        if name == "body":
            self._message.body = self._decoded(self._message)
            self._body = []
        elif name == "message":
            self.done.append(self._message)
            self._message = None

    def _decoded(self, message: StoredMessage) -> bytes | None:
        if message.is_oversized:
            return None
        try:
            raw = _bytes("".join(self._body))
            if message.properties.get(_COMPRESSED):
                inflater = zlib.decompressobj()
                raw = inflater.decompress(raw, self._most_bytes)
                message.is_oversized = len(raw) == self._most_bytes
                if not (message.is_oversized or inflater.eof):
                    raise ValueError(len(raw))
            if message.is_oversized:
                return None
            return _text(raw) if message.type == "text" else raw
        except (ValueError, binascii.Error, zlib.error):
            raise self._refused(f"the body of message {message.id[:60]} cannot be read") from None

    def _refused(self, text: str) -> CannotImport:
        return CannotImport(self._path, self._locator.getLineNumber(), text)


def _without_prefix(name: str) -> str:
    return name.removeprefix("jms.queue.").removeprefix("jms.topic.")


def _jms_id(user_id: str) -> str:
    """The JMSMessageID that clients know; empty if there is none."""
    return user_id and f"ID:{user_id.removeprefix('ID:')}"


def _bytes(text: str) -> bytes:
    """Decode Base64 in its form for URLs; a large body has many parts, each padded on its own."""
    compact = "".join(text.split())
    parts = re.findall(r"[^=]+=*", compact)
    if "".join(parts) != compact:
        raise ValueError(text[:60])
    return b"".join(base64.b64decode(part, altchars=b"-_", validate=True) for part in parts)


def _text(raw: bytes) -> bytes | None:
    """Return the text of a text message in UTF-8; Artemis stores 16 bits for each character.

    Half a character, which UTF-8 cannot have, becomes a question mark, as in Java.
    """
    if not raw or raw[0] == 0:
        return None
    length = int.from_bytes(raw[1:5], "big")
    if len(raw) < 5 + length:
        raise ValueError(length)
    return raw[5 : 5 + length].decode("utf-16-le", "surrogatepass").encode(errors="replace")
