"""Read an XML file that may come from anywhere: no DTD, no entities, bounded size and depth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl

from defusedxml.common import DefusedXmlException
from defusedxml.expatreader import create_parser

from ringfaust.importers.imported import CannotImport, read_file

DEPTH = 50
"""How deeply elements may nest. A broker.xml has about ten levels."""
_CHUNK = 1 << 16
_ABOUT_THE_FILE = ("xmlns", "xsi:", "xml:")
"""Attributes that say how a file is to be read, not what a broker does."""


@dataclass(slots=True)
class Element:
    """An element with the line it begins in. Names have no namespace."""

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, *tags: str) -> Iterator[Element]:
        """Yield the children with one of these tags."""
        return (child for child in self.children if child.tag in tags)

    def first(self, tag: str) -> Element | None:
        """Return the first child with this tag."""
        return next(self.all(tag), None)

    def text_of(self, tag: str) -> str:
        """Return the text of the first child with this tag; empty if there is none."""
        child = self.first(tag)
        return child.text if child else ""


def read_xml(path: Path) -> Element:
    """Read a whole file.

    Raises:
        CannotImport: it is too large, nests too deeply, or is not XML; it names the line.
    """
    builder = _Builder(path)
    for _ in parse(path, BytesIO(read_file(path)), builder):
        pass
    if builder.root is None:
        raise CannotImport(path, 1, "not XML: no element found")
    return builder.root


def parse(path: Path, file: BinaryIO, handler: ContentHandler) -> Iterator[None]:
    """Pass an open file to a handler, a piece at each step. Every error names its line.

    Raises:
        CannotImport: it is not XML, ends too early, or has a DTD or an entity.
    """
    parser = create_parser(forbid_dtd=True)
    parser.setContentHandler(handler)
    handler.setDocumentLocator(parser)
    try:
        while chunk := file.read(_CHUNK):
            parser.feed(chunk)
            yield
        parser.close()
    except SAXParseException as error:
        line = error.getLineNumber() or 1
        raise CannotImport(path, line, f"not XML: {error.getMessage()}") from None
    except DefusedXmlException:
        line = parser.getLineNumber()
        text = "a DTD or an entity is not accepted: write its text in its place"
        raise CannotImport(path, line, text) from None
    except (LookupError, ValueError):  # pyexpat knows only Python's encodings of one byte
        text = "not XML: its encoding is not known here; save it as UTF-8"
        raise CannotImport(path, 1, text) from None


def local(name: str) -> str:
    """Return a name without its namespace prefix; that of XInclude is `xi:`."""
    return "xi:include" if name.endswith(":include") else name.rpartition(":")[2]


class _Builder(ContentHandler):
    """Builds the tree of a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._open: list[Element] = []
        self._locator: Any  # the base class sets it: it knows the line
        self.root: Element | None = None

    def startElement(self, name: str, attrs: AttributesImpl) -> None:  # noqa: N802 - SAX names it
        """Open an element."""
        line = self._locator.getLineNumber()
        if len(self._open) == DEPTH:
            raise CannotImport(self._path, line, f"elements nest deeper than {DEPTH} levels")
        given = {
            local(key): value.strip()
            for key, value in attrs.items()
            if not key.startswith(_ABOUT_THE_FILE)
        }
        element = Element(local(name), given, line)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def characters(self, content: str) -> None:
        """Collect text."""
        if self._open:
            self._open[-1].text += content

    def endElement(self, name: str) -> None:  # noqa: N802
        """Close an element."""
        element = self._open.pop()
        element.text = re.sub(r"\s+", " ", element.text).strip()
