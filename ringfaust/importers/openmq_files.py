"""The lines of Open MQ's files, and Java properties; `openmq_shell` reads scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator

IMQCMD = re.compile(r"(?:.*/)?imqcmd(?:\.(?:exe|bat|cmd))?")
NAMES_IMQCMD = re.compile(r"(?<![\w.-])imqcmd(?![\w-])")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:]|[ \t\f])?[ \t\f]*(.*)", re.DOTALL)


def is_script(text: str) -> bool:
    """Return whether a file has commands, not properties."""
    return text.startswith("#!") or any(
        NAMES_IMQCMD.search(line) for line in text.splitlines() if line.lstrip()[:1] not in "#!"
    )


def properties(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and value of each property, as `java.util.Properties` reads them."""
    for line, content in joined(text, "#!", is_indent_kept=False):
        name, value = _PROPERTY.fullmatch(content).groups()  # type: ignore[union-attr]
        yield line, _text(name), _text(value).strip()


def _text(escaped: str) -> str:
    r"""Replace the escapes; two `\u` may be the halves of one character."""
    text = _ESCAPE.sub(_unescaped, escaped)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPED.get(escape, escape)


def joined(text: str, comments: str, *, is_indent_kept: bool) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; an odd number of backslashes at the end joins the next."""
    joined: str | None = None
    first = 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        if joined is None:
            line = raw.lstrip(" \t\f")
            if not line.strip() or line[0] in comments:
                continue
            joined, first = "", number
        else:
            line = raw if is_indent_kept else raw.lstrip(" \t\f")
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield first, joined + line
        joined = None
    if joined is not None:
        yield first, joined
