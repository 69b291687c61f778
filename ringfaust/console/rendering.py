"""Turn values into HTML: templates, numbers, times, and message bodies."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ringfaust import __version__
from ringfaust.client.inspected import Excerpt
from ringfaust.console.board import fill
from ringfaust.times import age_text, time_text

_HERE = Path(__file__).parent
ASSETS = _HERE / "assets"
PREFIX = "/console"
"""Under which the console is mounted."""
_HEX_BYTES = 4_096
"""How much of a body that is not text is shown."""
_INDENTED, _INDENTED_MORE = 4, 10_000
"""JSON is indented if it has at most so many times its characters then, and so many more."""


def _digest() -> str:
    found = hashlib.sha256()
    for path in sorted(ASSETS.iterdir()):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


ASSETS_PATH = f"/assets/{_digest()}"
"""Where the files of `assets` are: the path changes with them, so browsers may keep them."""


@dataclass(frozen=True, slots=True)
class Body:
    """A key, value or header as a page shows it."""

    kind: str
    """none, json, text or binary."""
    text: str
    note: str
    """What is not shown; empty: nothing."""


def body_of(excerpt: Excerpt | None) -> Body:
    """Show JSON indented, text as it is, and other bytes as hexadecimal numbers."""
    if excerpt is None:
        return Body("none", "", "")
    start = excerpt.start
    note = "" if excerpt.is_whole else f"the first {len(start):,} of {excerpt.size_bytes:,} bytes"
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if excerpt.is_whole or error.start < len(start) - 3:  # not a character that was cut in two
            shown = start[:_HEX_BYTES].hex(" ")
            return Body("binary", shown, note or _hex_note(len(start)))
        text = start[: error.start].decode()
    if excerpt.is_whole and text[:1] in "{[":
        try:
            return Body("json", _indented(text), note)
        except (ValueError, RecursionError):
            pass
    return Body("text", text, note)


def _indented(text: str) -> str:
    """JSON, indented unless that makes it much larger: 100 kB of brackets would be 100 MB.

    Numbers and repeated names stay as they are: to an object of Python, 1.10 is 1.1.
    """
    json.loads(text)
    parts, left, depth, before = [], _INDENTED * len(text) + _INDENTED_MORE, 0, ""
    for each in _LEXEME.findall(text):
        depth -= each in "]}"
        is_new_line = before == "," or (before in "[{") != (each in "]}")
        part = "\n" + "  " * depth if before and is_new_line else ""
        part += _readable(each) if "\\" in each else ": " if each == ":" else each
        depth += each in "[{"
        parts.append(part)
        left -= len(part)
        if left < 0:
            return text
        before = each
    return "".join(parts)


_LEXEME = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:"\s]+')


def _readable(string: str) -> str:
    """A string of JSON without escapes that it does not need, unless it has half a character."""
    shown = json.dumps(json.loads(string), ensure_ascii=False)
    return string if any("\ud800" <= char <= "\udfff" for char in shown) else shown


def _hex_note(size_bytes: int) -> str:
    shown = f"the first {_HEX_BYTES:,} of " if size_bytes > _HEX_BYTES else ""
    return f"{shown}{size_bytes:,} bytes that are not text"


def one_line(excerpt: Excerpt | None, most: int = 120) -> str:
    """The beginning of a body, for a table."""
    body = body_of(excerpt)
    text = " ".join(body.text.split())
    return text[:most] + ("…" if len(text) > most or body.note else "")


def number(value: float) -> str:
    """A count with separators, or a rate with as many digits as matter."""
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def bytes_text(value: int) -> str:
    """A size in text."""
    size = float(value)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def seconds(value: float | None) -> str:
    """A length of time; a dash for None."""
    return "–" if value is None else age_text(int(value * 1000))


def url(page: str, /, **query: object) -> str:
    """The address of one of our pages; parameters that are empty are left out."""
    kept = {name: value for name, value in query.items() if value not in ("", None)}
    return f"{PREFIX}{page}" + (f"?{urlencode(kept)}" if kept else "")


def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        enable_async=False,
    )
    env.filters |= {
        "number": number, "bytes": bytes_text, "seconds": seconds, "time": time_text,
        "age": age_text, "body": body_of, "one_line": one_line,
    }  # fmt: skip
    env.globals |= {
        "url": url, "fill": fill, "version": __version__,
        "assets": PREFIX + ASSETS_PATH, "prefix": PREFIX,
    }  # fmt: skip
    return env


_ENVIRONMENT = _environment()


def render(template: str, values: Mapping[str, Any]) -> str:
    """Fill in a template. Every value is escaped."""
    return _ENVIRONMENT.get_template(template).render(values)
