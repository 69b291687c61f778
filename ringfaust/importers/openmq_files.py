"""The lines of Open MQ's files: Java properties, and the commands of scripts and Dockerfiles."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

IMQCMD = re.compile(r"(?:.*/)?imqcmd(?:\.(?:exe|bat|cmd))?")
_NAMES_IMQCMD = re.compile(r"(?<![\w.-])imqcmd(?![\w-])")
_BETWEEN_COMMANDS = frozenset(";&|()")
_BEFORE_COMMAND = frozenset({
    "sh", "bash", "sudo", "exec", "command", "nohup", "time", "env", "call", "RUN", "CMD",
    "ENTRYPOINT", "if", "then", "else", "elif", "do", "while", "until", "!", "{",
})  # fmt: skip
"""Words of the shell and of a Dockerfile that a command may follow."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:]|[ \t\f])?[ \t\f]*(.*)", re.DOTALL)


def is_script(text: str) -> bool:
    """Return whether a file has commands, not properties."""
    return text.startswith("#!") or any(
        _NAMES_IMQCMD.search(line) for line in text.splitlines() if line.lstrip()[:1] not in "#!"
    )


def properties(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and value of each property, as `java.util.Properties` reads them."""
    for line, content in _joined(text, "#!", is_indent_kept=False):
        name, value = _PROPERTY.fullmatch(content).groups()  # type: ignore[union-attr]
        yield line, _text(name), _text(value).strip()


def _text(escaped: str) -> str:
    r"""Replace the escapes; two `\u` may be the halves of one character."""
    text = _ESCAPE.sub(_unescaped, escaped)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPED.get(escape, escape)


def commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line and words of each command, without what the shell allows before it.

    Raises:
        ScriptError: a quote of a line with imqcmd is not closed.
    """
    for line, content in _joined(text, "#", is_indent_kept=True):
        try:
            for words in _split(content):
                if command := _without_prefix(words):
                    yield line, command
        except ValueError as error:
            if _NAMES_IMQCMD.search(content):
                raise ScriptError(line, str(error)) from None
            yield line, ["(a quote that is not closed)"]


class ScriptError(ValueError):
    """A line of a script cannot be read."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def _joined(text: str, comments: str, *, is_indent_kept: bool) -> Iterator[tuple[int, str]]:
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


def _split(line: str) -> Iterator[list[str]]:
    instruction, _, rest = line.strip().partition(" ")
    if instruction in ("RUN", "CMD", "ENTRYPOINT") and rest.lstrip().startswith("["):
        try:
            yield [str(word) for word in json.loads(rest)]
        except json.JSONDecodeError as error:
            raise ValueError(error.msg) from None
        return
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    command: list[str] = []
    for word in words:
        if _BETWEEN_COMMANDS.issuperset(word):
            if command:
                yield command
            command = []
        else:
            command.append(word)
    if command:
        yield command


def _without_prefix(words: list[str]) -> list[str]:
    """Drop what stands before imqcmd; of other commands, return all."""
    for index, word in enumerate(words):
        if IMQCMD.fullmatch(word):
            return words[index:]
        may_precede = word in _BEFORE_COMMAND or word.rpartition("/")[2] in _BEFORE_COMMAND
        if not (may_precede or word.startswith("-") or _ASSIGNMENT.fullmatch(word)):
            break
    return words
