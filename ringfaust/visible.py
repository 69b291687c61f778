"""Text of others on a terminal: what would steer it is written as an escape, so that it is seen.

Anyone who can write to a topic chooses bodies, ids, names, reasons and headers. Control characters
in them could move the cursor, change what was printed before, or hide in a name (C0, C1, escape
sequences, bidirectional overrides, characters without width).
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, is_dataclass
from typing import Any

_LAYOUT = "\n\t"


def visible(text: str, *, keeps_lines: bool = False) -> str:
    r"""The text with an escape such as `\x1b` for each character that is not printed as itself.

    Args:
        text: any text.
        keeps_lines: line breaks and tabs stay.
    """
    if text.isprintable():
        return text
    kept = _LAYOUT if keeps_lines else ""
    return "".join(char if char.isprintable() or char in kept else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def visible_json(value: Any, indent: int | None = None) -> str:
    """The value as JSON, exactly: characters that are not printed are its own escapes."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def plain(value: Any) -> Any:
    """A value as JSON has it: bytes become text, or base64 behind `base64:`."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(each) for name, each in asdict(value).items()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return text_of(value) if isinstance(value, bytes) else value


def text_of(raw: bytes) -> str:
    """Bytes as text if they are UTF-8, otherwise as base64 behind `base64:`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(raw).decode()
