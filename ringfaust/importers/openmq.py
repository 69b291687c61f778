"""Open MQ and Sun Java System Message Queue: properties, and the `imqcmd` lines of scripts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from ringfaust.importers.imported import (
    FILE_BYTES,
    CannotImport,
    Fields,
    Imported,
    ImportFinding,
    Verdict,
)

_BEHAVIOURS = {
    "REMOVE_OLDEST": "drop_oldest",
    "REMOVE_LOW_PRIORITY": "drop_lowest_priority",
    "REJECT_NEWEST": "reject_newest",
    "FLOW_CONTROL": "block",
}
_LIMITS = {
    "maxNumMsgs": "max_messages",
    "maxTotalMsgBytes": "max_bytes",
    "maxBytesPerMsg": "max_message_bytes",
    "maxNumActiveConsumers": "max_active_consumers",
    "maxNumBackupConsumers": "max_backup_consumers",
}
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20}
_NO_EQUIVALENT = {
    "maxNumProducers": "any client may write to a Kafka topic that its ACLs admit",
    "isLocalOnly": "all workers serve all queues",
    "localOnly": "all workers serve all queues",
    "localDeliveryPreferred": "all workers serve all queues",
    "consumerFlowLimit": "a consumer chooses its credit",
    "useDMQ": "dead messages of all queues go to the topic ringfaust.dead",
    "validateXMLSchemaEnabled": "messages are not inspected",
    "XMLSchemaURIList": "messages are not inspected",
    "reloadXMLSchemaOnFailure": "messages are not inspected",
}
_IMQCMD = re.compile(r"(?:\S*/)?imqcmd(?:\.exe)?")
_BETWEEN_COMMANDS = frozenset(";&|()")
_AUTO = re.compile(r"imq\.autocreate\.(queue|topic|destination)(?:\.(\w+))?")


def import_openmq(path: Path) -> Imported:
    """Read a config.properties, an instance's properties, or a script with imqcmd.

    Raises:
        CannotImport: the file is too large, not text, or a value is not what it should be.
    """
    if path.stat().st_size > FILE_BYTES:
        raise CannotImport(path, 0, f"is larger than {FILE_BYTES >> 20} MiB")
    text = path.read_bytes().decode("latin-1")  # as Java reads properties
    if "\0" in text:
        raise CannotImport(path, 1 + text[: text.index("\0")].count("\n"), "is not text")
    imported = Imported(path)
    source = _OpenMq(imported)
    for line, content in _logical_lines(text):
        if _IMQCMD.fullmatch(content.split()[0]):
            source.command(line, content)
        else:
            source.property(line, content)
    source.finish()
    imported.add_routes()
    return imported


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; a backslash at the end joins the next one."""
    joined, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not joined and (not line or line[0] in "#!"):
            continue
        first = first if joined else number
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield first, joined + line
        joined = ""
    if joined:
        yield first, joined


def _commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line of a script.

    Raises:
        ValueError: a quote is not closed.
    """
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


class _OpenMq:
    """Collects destinations and the settings of those that are created automatically."""

    def __init__(self, imported: Imported) -> None:
        self._imported = imported
        self._creates = {"queue": True, "topic": True}
        self._auto: Fields = {}

    def property(self, line: int, content: str) -> None:
        """Read `name=value`."""
        name, separator, value = (
            (part.strip() for part in re.split(r"([=:])", content, maxsplit=1))
            if re.search(r"[=:]", content)
            else (content, "", "")
        )
        about = f"{name[:100]} = {value[:100]}" if "password" not in name.lower() else name[:100]
        if not separator:
            raise CannotImport(
                self._imported.source, line, f"{content[:60]!r} is neither NAME=VALUE nor imqcmd"
            )
        found = _AUTO.fullmatch(name)
        if found and found[2] is None and found[1] != "destination":
            self._creates[found[1]] = value.lower() == "true"
            why = f"{found[1]}s of unknown names are " + (
                "created" if self._creates[found[1]] else "refused"
            )
            self._imported.note(Verdict.TAKEN, line, about, why)
        elif found and found[2]:
            self._setting(line, about, found[2], value, self._auto)
        elif name == "imq.message.max_size":
            self._setting(line, about, "maxBytesPerMsg", value, self._auto)
        elif name.startswith("imq.destination.DMQ") or name == "imq.destination.logDeadMsgs":
            why = "dead messages of all queues go to the topic ringfaust.dead, whole"
            self._imported.note(Verdict.CHANGED, line, about, why)
        elif name == "imq.message.expiration.interval":
            why = "tick_ms in worker.yaml; a message expires at the next tick"
            self._imported.note(Verdict.CHANGED, line, about, why)
        else:
            why = "a setting of the broker itself; Kafka stores, authenticates and replicates"
            self._imported.note(Verdict.NONE, line, about, why)

    def command(self, line: int, content: str) -> None:
        """Read a line of `imqcmd create dst` or `update dst`, which may have several of them."""
        try:
            for words in _commands(content):
                self._command(line, words)
        except ValueError as error:
            raise CannotImport(self._imported.source, line, f"imqcmd: {error}") from None

    def _command(self, line: int, words: list[str]) -> None:
        if not _IMQCMD.fullmatch(words[0]):
            why = "a command of the shell, which is not run"
            self._imported.note(Verdict.NONE, line, " ".join(words[:3]), why)
            return
        if any("$" in word or "`" in word for word in words):
            why = "the shell would replace a part of it: write it out"
            self._imported.note(Verdict.NONE, line, " ".join(words[:3]), why)
            return
        if words[1:3] not in (["create", "dst"], ["update", "dst"]):
            why = "`ringfaust queue`, `message` and `consumer` operate queues"
            self._imported.note(Verdict.NONE, line, " ".join(words[:3]), why)
            return
        options = dict(zip(words[3::1], words[4::1], strict=False))
        name, kind = options.get("-n", ""), options.get("-t", "q")
        about = f"destination {name}"
        if not self._imported.is_name(name, line, about):
            return
        is_topic = kind == "t"
        fields: Fields = {}
        if is_topic:
            self._imported.addresses.setdefault(name, {})
            fields = self._imported.settings.setdefault(name, {})
            why = f"address {name}, which copies to each subscription"
        else:
            fields = self._imported.queues.setdefault(name, {})
            why = f"queue {name}"
        self._imported.note(Verdict.TAKEN, line, about, why)
        for option, value in zip(words, words[1:], strict=False):
            if option == "-o":
                key, _, text = value.partition("=")
                self._setting(line, f"{about}, {key} = {text}", key, text, fields)

    def _setting(self, line: int, about: str, key: str, value: str, fields: Fields) -> None:
        imported = self._imported
        if key == "limitBehavior":
            when_full = _BEHAVIOURS.get(value.upper())
            if when_full is None:
                raise CannotImport(
                    imported.source, line,
                    f"limitBehavior = {value[:60]!r} is none of {', '.join(_BEHAVIOURS)}",
                )  # fmt: skip
            fields["when_full"] = when_full
            imported.note(Verdict.TAKEN, line, about, f"when_full: {when_full}")
        elif key in _LIMITS:
            number = self._number(line, key, value)
            finding = ImportFinding(Verdict.TAKEN, line, about, f"{_LIMITS[key]}: {number}")
            imported.set(fields, _LIMITS[key], number, finding)
        else:
            why = _NO_EQUIVALENT.get(key, "not a setting that is known here")
            imported.note(Verdict.NONE, line, about, why)

    def _number(self, line: int, key: str, value: str) -> int:
        found = re.fullmatch(r"(-?\d{1,18})\s*([bkm]?)", value.lower())
        if found is None:
            raise CannotImport(
                self._imported.source, line,
                f"{key} = {value[:60]!r} is not a number, such as 1000 or 10m",
            )  # fmt: skip
        return int(found[1]) * _UNITS[found[2]]

    def finish(self) -> None:
        """Declare what is created automatically, with its settings."""
        if self._auto:
            self._imported.settings["#"] = self._auto
        if self._auto and self._creates["queue"]:
            self._imported.queues.setdefault("#", {})
