"""Values in broker.xml: numbers, sizes, switches, placeholders, and patterns of names."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ringfaust.core.patterns import is_pattern
from ringfaust.importers.imported import CannotImport, Imported, Verdict
from ringfaust.importers.xml_file import Element

OF_THE_BROKER = ("activemq.management", "activemq.notifications", "$sys", "$.artemis")
"""How the matches of addresses of the broker itself begin."""
INCLUDE = "xi:include"
_PLACEHOLDER = re.compile(r"\$\{([^}:]*)(?::([^}]*))?\}")
_SIZE = re.compile(r"(-?\d+)\s*(?:([kmg])i?b?|b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def whole(imported: Imported, line: int, name: str, text: str) -> int:
    """Parse a whole number.

    Raises:
        CannotImport: it is none.
    """
    if not re.fullmatch(r"[+-]?\d{1,19}", text):
        raise _refused(imported, line, name, text, "not a whole number")
    return int(text)


def number(imported: Imported, line: int, name: str, text: str) -> float:
    """Parse a number.

    Raises:
        CannotImport: it is none.
    """
    if not re.fullmatch(r"[+-]?(?=\.?\d)\d{0,19}(\.\d{0,19})?([eE][+-]?\d{1,3})?", text):
        raise _refused(imported, line, name, text, "not a number")
    return float(text)


def size(imported: Imported, line: int, name: str, text: str) -> int:
    """Parse a number of bytes, such as 10M or 20KiB.

    Raises:
        CannotImport: it is none.
    """
    found = _SIZE.fullmatch(text)
    if found is None or len(found[1]) > 19:
        what = "not a number of bytes, such as 10485760 or 10M"
        raise _refused(imported, line, name, text, what)
    return int(found[1]) * _UNITS[(found[2] or "").lower()]


def switch(imported: Imported, line: int, name: str, text: str) -> bool:
    """Parse true or false.

    Raises:
        CannotImport: it is neither.
    """
    if text.lower() not in ("true", "false"):
        raise _refused(imported, line, name, text, "neither true nor false")
    return text.lower() == "true"


def _refused(imported: Imported, line: int, name: str, text: str, what: str) -> CannotImport:
    return CannotImport(imported.source, line, f"{name} = {text[:60]!r} is {what}")


_NAMING = ("name", "match", "address", "forwarding-address")
"""Attributes, and elements of a queue or divert, without which it cannot be placed."""


def resolve(element: Element, imported: Imported) -> None:
    """Fill in the defaults of all placeholders, as Artemis does before it reads the file.

    An element whose name has a placeholder without a default, and an include of another file, get
    a line and are taken out. Those of `security-settings` stay, for what they may deny.
    """
    kept = []
    for child in element.children:
        child.text = _filled(child.text)
        child.attributes = {name: _filled(value) for name, value in child.attributes.items()}
        resolve(child, imported)
        names = [child.attributes.get(name, "") for name in _NAMING]
        names += [each.text for each in child.all("address", "forwarding-address")]
        unknown = [found for name in names if (found := _PLACEHOLDER.search(name))]
        about = f"{element.tag}, {child.tag}"
        is_security = element.tag == "security-settings"
        if child.tag == INCLUDE:
            about += f" {child.attributes.get('href', '')[:100]}"
            why = "another file was not read: put its content in the place of this line"
            imported.note(Verdict.NONE, child.line, about, why)
        elif unknown:
            about += f" {' '.join(filter(None, names))[:100]}"
            why = f"the property {unknown[0][1]} is not known here: write its value in its place"
            imported.note(Verdict.NONE, child.line, about, why)
        if is_security or not (unknown or child.tag == INCLUDE):
            kept.append(child)
    element.children = kept


def placeholder(text: str) -> str | None:
    """The property of the first placeholder without a default; None: there is none.

    Only the broker's machine knows its value.
    """
    found = _PLACEHOLDER.search(text)
    return found[1] if found else None


def _filled(text: str) -> str:
    return _PLACEHOLDER.sub(lambda found: found[0] if found[2] is None else found[2].strip(), text)


def note_unknown(
    element: Element,
    about: str,
    imported: Imported,
    *,
    children: Collection[str] = (),
    attributes: Collection[str] = (),
) -> None:
    """Give a line to each child and attribute but those that are read."""
    given = [(key, value, element.line) for key, value in element.attributes.items()]
    given = [each for each in given if each[0] not in attributes]
    given += [
        (child.tag, child.text or " ".join(child.attributes.values()), child.line)
        for child in element.children
        if child.tag not in children
    ]
    for name, value, line in given:
        setting = f"{about}, {name}" + (f" = {value[:100]}" if value else "")
        imported.note(Verdict.NONE, line, setting, "not a setting that is known here")


@dataclass(frozen=True, slots=True)
class Wildcards:
    """The syntax of patterns, which `wildcard-addresses` may change."""

    delimiter: str = "."
    any_words: str = "#"
    single_word: str = "*"
    literal: tuple[str, str] = ("", "")
    """What surrounds a match that is no pattern (`literal-match-markers`)."""

    def translate(self, pattern: str) -> str | None:
        """Return the pattern in our syntax, or None if that is impossible."""
        opening, closing = self.literal
        if opening and pattern.startswith(opening) and pattern.endswith(closing):
            name = pattern[len(opening) : -len(closing) or None]
            return None if is_pattern(name) else name
        if self.delimiter == ".":
            words = pattern.split(".")
        else:
            words = pattern.split(self.delimiter)
            if len(words) > 1 or "." in pattern:
                return None  # our words end at dots, so names with another delimiter are one word
        ours = {self.any_words: "#", self.single_word: "*"}
        if any(word in ("#", "*") and word not in ours for word in words):
            return None  # text for Artemis
        return ".".join(ours.get(word, word) for word in words)

    def beginning(self, pattern: str) -> str:
        """Return the text with which all names begin that a pattern matches."""
        text = pattern
        if self.literal[0] and text.startswith(self.literal[0]):
            text = text.removeprefix(self.literal[0])
        for wildcard in (self.any_words, self.single_word, *filter(None, self.literal[1:])):
            text = text.partition(wildcard)[0]
        return text.removesuffix(self.delimiter)


_ROUTING = ("routing-enabled", "enabled")
_SYNTAX = ("delimiter", "any-words", "single-word", *_ROUTING)


def wildcards_of(core: Element, imported: Imported) -> Wildcards:
    """Read the syntax of patterns from a core element."""
    markers = core.text_of("literal-match-markers")
    literal = (markers[0], markers[1]) if len(markers) == 2 else ("", "")
    given = core.first("wildcard-addresses")
    text = "patterns are written in ringfaust's syntax: words between dots, * and #"
    for element in core.all("literal-match-markers"):
        setting = f"literal-match-markers = {element.text}"
        imported.note(Verdict.CHANGED, element.line, setting, text)
    if given is None:
        return Wildcards(literal=literal)
    found: Mapping[str, str] = {child.tag: child.text for child in given.children if child.text}
    for child in given.children:
        setting = f"wildcard-addresses, {child.tag} = {child.text}"
        if child.tag == "delimiter" and child.text in ("", "."):
            imported.note(Verdict.TAKEN, child.line, setting, "words end at dots, as here")
        elif child.tag == "delimiter":
            why = (
                f"words end at dots here: a name with {child.text} is one word, which only # and * "
                "cover, and a match with it has a line of its own"
            )
            imported.note(Verdict.NONE, child.line, setting, why)
        elif child.tag in _ROUTING and child.text.lower() != "false":
            why = "no queue gets what is sent to many addresses: attach to each by its name"
            imported.note(Verdict.NONE, child.line, setting, why)
        elif child.tag in _SYNTAX:
            imported.note(Verdict.CHANGED, child.line, setting, text)
    note_unknown(given, "wildcard-addresses", imported, children=_SYNTAX)
    return Wildcards(
        delimiter=found.get("delimiter", "."),
        any_words=found.get("any-words", "#"),
        single_word=found.get("single-word", "*"),
        literal=literal,
    )
