"""The commands of scripts and Dockerfiles that run `imqcmd`; nothing is run or replaced here."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator

from ringfaust.importers.openmq_files import IMQCMD, NAMES_IMQCMD, joined

_BETWEEN_COMMANDS = ";&|()"
_ENDS_WORD = frozenset(" \t\r\n<>" + _BETWEEN_COMMANDS)
_ENDS_REDIRECTION = re.compile(r"[<>&|]*")
_QUOTING = re.compile(r"""\\.|'|"|(?:(?<=[\s;&|()])|^)\#""")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh", "RUN", "ssh", "su"})
"""What carries out the text of a heredoc."""
_BEFORE_COMMAND = _SHELLS | {
    "sudo", "exec", "command", "nohup", "time", "env", "call", "CMD", "ENTRYPOINT", "if", "then",
    "else", "elif", "do", "while", "until", "!", "{",
}  # fmt: skip
"""Words of the shell and of a Dockerfile that a command may follow."""
_WRAPPERS = frozenset({
    "docker", "docker-compose", "podman", "nerdctl", "kubectl", "oc", "timeout", "nice", "ionice",
    "ssh", "su", "runuser", "gosu", "su-exec", "chroot", "watch", "stdbuf", "setsid", "flock",
    "xargs",
})  # fmt: skip
"""Commands that carry out another one, after options and arguments of their own."""
_MENTIONS = frozenset({
    "echo", "printf", "which", "type", "grep", "ls", "cat", "chmod", "chown", "cp", "mv", "rm",
    "ln", "find", "test", "[", "man", "stat", "logger",
})  # fmt: skip
"""Commands that may only name imqcmd."""
_TAKES_TEXT = _MENTIONS | {"tee"}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_COMMAND_OPTION = re.compile(r"-\w*c")
"""Such as `-c` and `-lc` of a shell, which a text with commands follows."""
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)(?:(?<=\w)\}|(?!\w))")
_HOLDS_COMMAND = re.compile(
    r"""\b([A-Za-z_]\w*)=["']?(?:[^\s"']{0,300}/)?imqcmd(?:\.\w+)?(?=[\s"';]|$)""", re.MULTILINE
)
_CALLED_LIKE_IT = re.compile(r"\w*imq_?cmd", re.IGNORECASE)
_HEREDOC = re.compile(r"(?<!<)<<(-?)[ \t]*(?:'([^']+)'|\"([^\"]+)\"|\\?([A-Za-z_]\w*))")
_NESTED = 5
"""How deep commands within the text of others are looked for."""
_QUOTED_LINES = 50
"""The most lines that a quoted text may have."""
SUBSTITUTED = "${}"
"""Stands for the output of a command."""
_HEREDOC_TEXT = "(the text of a heredoc)"


class ScriptError(ValueError):
    """A line of a script cannot be read."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line and words of each command, without what the shell allows before it.

    The text of a heredoc is read if a shell runs it; otherwise it is one word if it names imqcmd.

    Raises:
        ScriptError: a quote of a line with imqcmd is not closed.
    """
    rest, texts = _without_heredocs(_with_command(text))
    found = [(line, [_HEREDOC_TEXT]) for line in texts]
    given = list(joined(rest, "#", is_indent_kept=True))
    place = 0
    while place < len(given):
        line = given[place][0]
        try:
            read, place = _next_commands(given, place)
            found += [(line, words) for words in read]
        except ValueError as error:
            if NAMES_IMQCMD.search(given[place][1]):
                raise ScriptError(line, str(error)) from None
            found.append((line, ["(a quote that is not closed)"]))
            place += 1
    yield from sorted(found, key=lambda each: each[0])


def _next_commands(given: list[tuple[int, str]], place: int) -> tuple[list[list[str]], int]:
    """Read the line at `place` and those over which quoted text continues; return the next place.

    Raises:
        ValueError: a quote is not closed within some lines.
    """
    lines, quote = [], ""
    for after, (_, line) in enumerate(given[place : place + _QUOTED_LINES], place + 1):
        lines.append(line)
        quote = _open_quote(line, quote)
        if not quote:
            return list(_commands_of("\n".join(lines), _NESTED)), after
    raise ValueError("No closing quotation")


def _open_quote(line: str, quote: str) -> str:
    """The quote that is open after a line, if `quote` is open before it."""
    for found in _QUOTING.finditer(line):
        char = found[0]
        if char[0] == "#" and not quote:
            break
        if char in ("'", '"') and quote in ("", char):
            quote = "" if quote else char
        elif char in ("\\'", '\\"') and quote == "'" == char[1]:
            quote = ""
    return quote


def _with_command(text: str) -> str:
    """Write imqcmd in the place of each variable that holds it, or is called like it."""
    holding = {found[1] for found in _HOLDS_COMMAND.finditer(text)}

    def replaced(found: re.Match[str]) -> str:
        is_command = found[1] in holding or _CALLED_LIKE_IT.fullmatch(found[1])
        return "imqcmd" if is_command else found[0]

    return _VARIABLE.sub(replaced, text)


def is_heredoc(words: list[str]) -> bool:
    """Return whether a command is the text of a heredoc that is not run."""
    return words == [_HEREDOC_TEXT]


def _without_heredocs(text: str) -> tuple[str, list[int]]:
    """Blank the texts that no shell runs; return also where those with imqcmd begin."""
    lines = re.split(r"\r\n|\r|\n", text)
    places: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        places.setdefault(line.strip(), []).append(number)
    texts = []
    number = -1
    while (number := number + 1) < len(lines):
        found = _HEREDOC.search(lines[number])
        if found is None or lines[number].lstrip().startswith("#"):
            continue
        word = found[2] or found[3] or found[4]
        ends = places.get(word, [])
        after = bisect_right(ends, number)
        if after == len(ends):
            continue  # it is no heredoc, such as a shift in a calculation
        end = ends[after]
        lines[end] = ""
        before, after_it = (
            {each.rpartition("/")[2] for each in part.split()}
            for part in (lines[number][: found.start()], lines[number][found.end() :])
        )
        if not (before & _SHELLS and not before & _TAKES_TEXT or after_it & _SHELLS):
            if any(map(NAMES_IMQCMD.search, lines[number + 1 : end])):
                texts.append(number + 2)
            lines[number + 1 : end] = [""] * (end - number - 1)
            number = end
    return "\n".join(lines), texts


def _commands_of(line: str, depth: int) -> Iterator[list[str]]:
    """Yield the commands of a line, and those whose output it uses if these name imqcmd."""
    instruction, _, rest = line.strip().partition(" ")
    if instruction in ("RUN", "CMD", "ENTRYPOINT") and rest.lstrip().startswith("["):
        try:
            yield from _run_by([str(word) for word in json.loads(rest)], depth)
        except json.JSONDecodeError as error:
            raise ValueError(error.msg) from None
        return
    given, inner = _split(line)
    for each in inner:
        if depth and NAMES_IMQCMD.search(each):
            yield from _commands_of(each, depth - 1)
    for words in given:
        yield from _run_by(words, depth)


def _split(line: str) -> tuple[list[list[str]], list[str]]:
    """The words of each command, up to a comment, and the commands whose output they use."""
    given: list[list[str]] = [[]]
    inner: list[str] = []
    word: list[str] = []
    is_word = is_quoted = False

    def end_word() -> None:
        if is_word:
            given[-1].append("".join(word))
            word.clear()

    place = 0
    while place < len(line):
        char, end, text = line[place], place + 1, line[place]
        is_plain = not is_quoted
        if char == "\\":
            end = place + 2
            follows = line[place + 1 : end]
            text = follows if is_plain or follows in tuple('"\\$`') else char + follows
        elif char == "'" and is_plain:
            end = _after(line, "'", place + 1)
            text = line[place + 1 : end - 1]
        elif char == "`" or line.startswith("$(", place):
            opening = 1 if char == "`" else 2
            end = _after(line, "`", end) if char == "`" else _after_parenthesis(line, end)
            inner.append(line[place + opening : end - 1])
            text = SUBSTITUTED
        elif char == '"':
            is_quoted, text = not is_quoted, ""
        elif char == "#" and is_plain and not is_word:
            place = len(line) if (found := line.find("\n", place)) < 0 else found
            continue
        elif is_plain and char in _ENDS_WORD:
            end_word()
            is_word, place = False, end
            if char in "<>":
                place = _ENDS_REDIRECTION.match(line, place).end()  # type: ignore[union-attr]
                given[-1].append(line[end - 1 : place])
            elif char in _BETWEEN_COMMANDS and line[end : end + 1] != ">":
                given.append([])
            continue
        is_word = True
        word.append(text)
        place = end
    end_word()
    return given, inner


def _after(line: str, char: str, start: int) -> int:
    found = line.find(char, start)
    return len(line) if found < 0 else found + 1


def _after_parenthesis(line: str, start: int) -> int:
    """The place behind the parenthesis that closes the one at `start`."""
    depth = 0
    for place in range(start, len(line)):
        depth += {"(": 1, ")": -1}.get(line[place], 0)
        if not depth:
            return place + 1
    return len(line)


def _run_by(words: list[str], depth: int) -> Iterator[list[str]]:
    """Yield the imqcmd that a command runs, if it runs one, or else the command."""
    is_wrapped = False
    for index, word in enumerate(words):
        base = word.rpartition("/")[2]
        before = words[index - 1] if index else ""
        if IMQCMD.fullmatch(word):
            yield words[index:]
            return
        is_text = is_wrapped or _COMMAND_OPTION.fullmatch(before)
        if is_text and depth and re.search(r"\s", word) and NAMES_IMQCMD.search(word):
            for line in word.splitlines():
                yield from _commands_of(line, depth - 1)
            return
        if base in _MENTIONS:
            break
        is_wrapped = is_wrapped or base in _WRAPPERS
        is_before = word in _BEFORE_COMMAND or base in _BEFORE_COMMAND
        is_ours = is_before or word.startswith("-") or _ASSIGNMENT.fullmatch(word)
        if not (is_wrapped or is_ours):
            break
    if words:
        yield words
