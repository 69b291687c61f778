"""`imqcmd` in scripts: destinations that they create, update and destroy, and the broker's options.

The commands are read as if they had run in order: of an option the last value counts, and what is
destroyed is not declared.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ringfaust.importers.imported import Fields, Imported, Verdict
from ringfaust.importers.openmq_files import IMQCMD
from ringfaust.importers.openmq_properties import Properties, Property, shown
from ringfaust.importers.openmq_settings import DEAD, read_setting
from ringfaust.importers.openmq_shell import is_heredoc

_VERBS = frozenset({
    "create", "update", "destroy", "purge", "compact", "list", "query", "metrics", "pause",
    "resume", "restart", "shutdown", "quiesce", "unquiesce", "takeover", "reset", "reload",
    "commit", "rollback", "changemaster", "checkpoint", "migratestore",
})  # fmt: skip
_DEAD_MESSAGES = "mq.sys.dmq"
_READ = (["create", "dst"], ["update", "dst"], ["destroy", "dst"], ["update", "bkr"])
_REPLACED = re.compile(r"[$`]|%\w+%")
"""What the shell, or that of Windows, would replace."""
_WITHOUT_VALUE = frozenset({"-f", "-s", "-v", "-h", "-H", "-secure", "-debug", "-nocheck"})


_Key = tuple[str, str]


class _Command(NamedTuple):
    """A command with imqcmd."""

    place: int
    """Among all commands of the file."""
    line: int
    verb: list[str]
    kind: str
    name: str
    options: list[str]
    """The values of -o."""
    alone: list[str]
    """Variables that stand alone, so that they may be any options."""

    @property
    def destination(self) -> _Key:
        """Open MQ's queues and topics have separate name spaces."""
        return self.kind, self.name


class Script:
    """Reads the commands of a script."""

    def __init__(self, imported: Imported, given: list[tuple[int, list[str]]]) -> None:
        self._imported = imported
        self._given = [
            (line, words, _command(place, line, words) if IMQCMD.fullmatch(words[0]) else None)
            for place, (line, words) in enumerate(given)
        ]
        read = [each for _, _, each in self._given if each is not None and _is_known(each)]
        self._ends: dict[_Key, _Command] = {}
        self._created: set[_Key] = set()
        self._last: dict[tuple[_Key, str], _Command] = {}
        """By destination and option, which command sets it last."""
        existing: dict[_Key, _Command] = {}
        self._refused: dict[int, _Command] = {}
        """By place, the command that has created what another one would create."""
        for each in read:
            if each.verb == ["destroy", "dst"]:
                self._ends[each.destination] = each
                existing.pop(each.destination, None)
            elif each.verb == ["create", "dst"]:
                self._created.add(each.destination)
                if (first := existing.setdefault(each.destination, each)) is not each:
                    self._refused[each.place] = first
                    continue
            for option in each.options:
                self._last[each.destination, option.partition("=")[0]] = each
        self._queues = {
            each.name for each in read
            if each.verb[1:] == ["dst"] and each.kind != "t" and not self._end_of(each)
        }  # fmt: skip
        given_properties = [
            Property(each.line, *_parts(option))
            for each in read if each.verb == ["update", "bkr"]
            for option in each.options if not _REPLACED.search(option)
        ]  # fmt: skip
        self._properties = iter(given_properties)
        self.properties = Properties(imported, given_properties)

    def read(self) -> None:
        """Read all commands.

        Raises:
            CannotImport: an option has a value that is not what it should be.
        """
        for line, words, command in self._given:
            if is_heredoc(words):
                why = "not run: if it is a script, import it as a file of its own"
                self._imported.note(Verdict.NONE, line, words[0], why)
            elif command is None:
                why = "a command of the shell, which is not run"
                self._imported.note(Verdict.NONE, line, words[0].partition("=")[0][:60], why)
            else:
                self._read(command)

    def _read(self, command: _Command) -> None:
        line, about = command.line, " ".join(["imqcmd", *command.verb])
        if command.verb not in _READ:
            why = "`ringfaust queue`, `message` and `consumer` operate queues"
            self._imported.note(Verdict.NONE, line, about, why)
        elif not _is_known(command):
            why = "the shell would replace a part of it: write it out"
            self._imported.note(Verdict.NONE, line, about, why)
        elif command.verb == ["update", "bkr"]:
            self._broker(command, about)
        elif command.name == _DEAD_MESSAGES:
            self._imported.note(Verdict.CHANGED, line, f"destination {command.name}", DEAD)
            for each in command.options:
                why = "the retention of the topic ringfaust.dead limits it"
                said = f"destination {command.name}, {each[:100]}"
                self._imported.note(Verdict.NONE, line, said, why)
        elif command.verb == ["destroy", "dst"]:
            self._destroyed(command, about)
        else:
            self._destination(command)

    def _broker(self, command: _Command, about: str) -> None:
        for each in command.options:
            if _REPLACED.search(each):
                why = "the shell would replace a part of it: write it out"
                said = f"{about}, {shown(*_parts(each))}"
                self._imported.note(Verdict.NONE, command.line, said, why)
            else:
                self.properties.read(next(self._properties))
        if not command.options:
            self._imported.note(Verdict.NONE, command.line, about, "it sets nothing")

    def _destroyed(self, command: _Command, about: str) -> None:
        said = f"{about} {command.name}"
        if command.destination in self._created:
            self._imported.note(Verdict.TAKEN, command.line, said, "it is not declared")
        else:
            why = "no command of the file creates it; `ringfaust queue delete` deletes a queue"
            self._imported.note(Verdict.NONE, command.line, said, why)

    def _destination(self, command: _Command) -> None:
        line, name, about = command.line, command.name, f"destination {command.name}"
        if (end := self._end_of(command)) is not None:
            self._imported.note(Verdict.NONE, line, about, f"line {end.line} destroys it")
            return
        if (first := self._refused.get(command.place)) is not None:
            why = f"it exists since line {first.line}, so Open MQ refuses to create it"
            self._imported.note(Verdict.NONE, line, about, why)
            return
        if not self._imported.is_name(name, line, about, patterns=False):
            return
        is_topic = command.kind == "t"
        verdict, why = Verdict.TAKEN, f"queue {name}"
        if is_topic:
            ours = f"{name}-topic" if name in self._queues else name
            self._imported.addresses.setdefault(ours, {})
            fields = self._imported.settings.setdefault(ours, {})
            why = f"address {ours}, which copies to each subscription"
            if ours != name:
                verdict = Verdict.CHANGED
                why += f"; {name} is a queue, and queues and topics share their names here"
        else:
            fields = self._imported.queues.setdefault(name, {})
        if command.alone:
            verdict = Verdict.CHANGED
            why += f"; {command.alone[0][:60]} is not known here: it may set more"
        self._imported.note(verdict, line, about, why)
        for each in command.options:
            self._option(command, about, each, fields)

    def _option(self, command: _Command, about: str, option: str, fields: Fields) -> None:
        key, value = _parts(option)
        said = f"{about}, {key} = {value}"
        last = self._last[command.destination, key]
        if _REPLACED.search(option):
            why = "the shell would replace a part of it: write it out"
            self._imported.note(Verdict.NONE, command.line, said, why)
        elif last is not command:
            why = f"line {last.line} sets it again, and counts alone"
            self._imported.note(Verdict.NONE, command.line, said, why)
        else:
            read_setting(
                self._imported, command.line, said, (key, value), fields,
                is_topic=command.kind == "t",
            )  # fmt: skip

    def _end_of(self, command: _Command) -> _Command | None:
        """The command that destroys what this one creates or updates."""
        end = self._ends.get(command.destination)
        return end if end is not None and end.place >= command.place else None


def _command(place: int, line: int, words: list[str]) -> _Command:
    pairs = [*zip(words[1:], words[2:], strict=False)]
    options = dict(pairs)
    alone = [
        word for before, word in zip(words, words[1:], strict=False)
        if word.startswith(("$", "`", "%")) and _REPLACED.search(word)
        and (not before.startswith("-") or before in _WITHOUT_VALUE)
    ]  # fmt: skip
    settings = [value for option, value in pairs if option == "-o"]
    return _Command(
        place, line, _verb(words), options.get("-t", "q"), options.get("-n", ""), settings, alone
    )


def _is_known(command: _Command) -> bool:
    """Return whether the file alone says what the command is for."""
    return not _REPLACED.search(command.name + command.kind)


def _parts(option: str) -> tuple[str, str]:
    key, _, value = option.partition("=")
    return key, value


def _verb(words: list[str]) -> list[str]:
    """The command of imqcmd and its object; options may precede and follow them."""
    for index, word in enumerate(words[1:], 1):
        if word in _VERBS:
            return words[index : index + 2]
    return []
