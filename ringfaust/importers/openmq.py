"""Open MQ and Sun Java System Message Queue: properties, and the `imqcmd` lines of scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from ringfaust.importers.imported import (
    CannotImport,
    Fields,
    Imported,
    ImportFinding,
    Verdict,
    refuse_large,
)
from ringfaust.importers.openmq_files import IMQCMD, ScriptError, commands, is_script, properties

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
_FILLS = ("max_messages", "max_bytes")
_DEFAULT_BEHAVIOUR = "REJECT_NEWEST"
"""Destination.java, `limit = DestLimitBehavior.REJECT_NEWEST`."""
_VERBS = frozenset({
    "create", "update", "destroy", "purge", "compact", "list", "query", "metrics", "pause",
    "resume", "restart", "shutdown", "quiesce", "unquiesce", "takeover", "reset", "reload",
    "commit", "rollback", "changemaster", "checkpoint", "migratestore",
})  # fmt: skip
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
_OFF = {
    "maxNumProducers": "-1", "isLocalOnly": "false", "localOnly": "false", "useDMQ": "true",
    "localDeliveryPreferred": "false", "validateXMLSchemaEnabled": "false",
}  # fmt: skip
"""Values that leave the same behaviour as here."""
_DEAD_MESSAGES = "mq.sys.dmq"
_DEAD = "dead messages of all queues go to the topic ringfaust.dead, whole"
_MESSAGE_BYTES = ("imq.message.max_size", "imq.autocreate.destination.maxBytesPerMsg")
"""Limits of the broker and of a destination: a message has to keep both."""
_AUTO = re.compile(r"imq\.autocreate\.(queue|topic|destination)(?:\.(\w+))?")


def import_openmq(path: Path) -> Imported:
    """Read a config.properties, an instance's properties, or a script with imqcmd.

    Raises:
        CannotImport: the file is too large, not text, or a value is not what it should be.
    """
    refuse_large(path)
    text = path.read_bytes().decode("latin-1")  # as Java reads properties
    if "\0" in text:
        raise CannotImport(path, 1 + text[: text.index("\0")].count("\n"), "is not text")
    imported = Imported(path)
    source = _OpenMq(imported)
    with imported.kept_when_refused():
        try:
            if is_script(text):
                for line, words in commands(text):
                    source.command(line, words)
            else:
                given = list(properties(text))
                others = [each for each in given if not each[2]]
                if others and not any(name.startswith("imq.") for _, name, _ in given):
                    line, name, _ = others[0]
                    about = f"{name[:60]!r} is neither NAME=VALUE nor imqcmd"
                    raise CannotImport(path, line, about)
                source.survey({name: value for _, name, value in given})
                for line, name, value in given:
                    source.property(line, name, value)
                source.note_default()
        except ScriptError as error:
            raise CannotImport(path, error.line, f"imqcmd: {error}") from None
        source.finish()
        imported.add_routes()
    return imported


class _OpenMq:
    """Collects destinations and the settings of those that are created automatically."""

    def __init__(self, imported: Imported) -> None:
        self._imported = imported
        self._creates = {"queue": True, "topic": True}
        self._auto: Fields = {}
        self._most_bytes: int | None = None

    def survey(self, given: Mapping[str, str]) -> None:
        """Read what decides about other properties, wherever it stands."""
        for kind in self._creates:
            self._creates[kind] = given.get(f"imq.autocreate.{kind}", "true").lower() == "true"
        if given.get("imq.autocreate.topic") and self._creates == {"queue": False, "topic": True}:
            self._imported.addresses["#"] = {}
        limits = [_parsed(value) for name, value in given.items() if name in _MESSAGE_BYTES]
        self._most_bytes = min(
            (each for each in limits if each is not None and each >= 0), default=None
        )

    def property(self, line: int, name: str, value: str) -> None:
        """Read a property."""
        about = f"{name[:100]} = {value[:100]}"
        if "password" in name.lower():  # it may stand in the name, too: imq.password{…}
            about = re.split(r"[^\w.-]", name)[0][:100]
        found = _AUTO.fullmatch(name)
        if found and found[2] is None and found[1] != "destination":
            self._note_creation(line, about, found[1])
        elif name in _MESSAGE_BYTES and self._number(line, "maxBytesPerMsg", value) != (
            self._most_bytes if self._most_bytes is not None else -1
        ):
            why = (
                f"max_message_bytes: {self._most_bytes}; the smaller of two limits holds, as there"
            )
            self._imported.note(Verdict.CHANGED, line, about, why)
        elif name in _MESSAGE_BYTES:
            self._setting(line, about, "maxBytesPerMsg", value, self._auto)
        elif found and found[2] and found[1] == "topic" and found[2] in (*_LIMITS, "limitBehavior"):
            why = "Open MQ has this limit for destinations, not for topics alone"
            self._imported.note(Verdict.NONE, line, about, why)
        elif found and found[2]:
            self._setting(line, about, found[2], value, self._auto)
        elif name.startswith("imq.destination.DMQ") or name == "imq.destination.logDeadMsgs":
            self._imported.note(Verdict.CHANGED, line, about, _DEAD)
        elif name == "imq.message.expiration.interval":
            why = "tick_ms in worker.yaml; a message expires at the next tick"
            self._imported.note(Verdict.CHANGED, line, about, why)
        else:
            why = "a setting of the broker itself; Kafka stores, authenticates and replicates"
            self._imported.note(Verdict.NONE, line, about, why)

    def _note_creation(self, line: int, about: str, kind: str) -> None:
        """Say what becomes of unknown names; here one that is sent to is a queue, if they are."""
        creates = self._creates[kind]
        if kind == "topic" and creates and self._creates["queue"]:
            why = "what is unknown becomes a queue: declare each topic as an address"
            self._imported.note(Verdict.CHANGED, line, about, why)
            return
        why = f"{kind}s of unknown names are {'created' if creates else 'refused'}"
        self._imported.note(Verdict.TAKEN, line, about, why)

    def note_default(self) -> None:
        """Say what a file means that has nothing about the queues of unknown names."""
        if self._auto or not self._creates["queue"]:
            return
        self._imported.queues["#"] = {}
        about = "imq.autocreate.destination, not set"
        why = (
            "the pattern #, for Open MQ creates what is unknown; its default limits of 100000 "
            "messages, 10 GiB and 10 MiB a message are not set here"
        )
        self._imported.note(Verdict.CHANGED, 0, about, why)

    def command(self, line: int, words: list[str]) -> None:
        """Read a command; `imqcmd create dst` and `update dst` have a meaning here."""
        if not IMQCMD.fullmatch(words[0]):
            why = "a command of the shell, which is not run"
            self._imported.note(Verdict.NONE, line, words[0].partition("=")[0][:60], why)
            return
        verb = _verb(words)
        about = " ".join(["imqcmd", *verb])
        if verb not in (["create", "dst"], ["update", "dst"]):
            why = "`ringfaust queue`, `message` and `consumer` operate queues"
            self._imported.note(Verdict.NONE, line, about, why)
        elif any("$" in word or "`" in word for word in words[1:]):
            why = "the shell would replace a part of it: write it out"
            self._imported.note(Verdict.NONE, line, about, why)
        else:
            self._destination(line, words)

    def _destination(self, line: int, words: list[str]) -> None:
        pairs = [*zip(words[1:], words[2:], strict=False)]
        options = dict(pairs)
        name, kind = options.get("-n", ""), options.get("-t", "q")
        settings = [value for option, value in pairs if option == "-o"]
        about = f"destination {name}"
        if name == _DEAD_MESSAGES:
            self._imported.note(Verdict.CHANGED, line, about, _DEAD)
            for each in settings:
                why = "the retention of the topic ringfaust.dead limits it"
                self._imported.note(Verdict.NONE, line, f"{about}, {each[:100]}", why)
            return
        if not self._imported.is_name(name, line, about, patterns=False):
            return
        if kind == "t":
            self._imported.addresses.setdefault(name, {})
            fields = self._imported.settings.setdefault(name, {})
            why = f"address {name}, which copies to each subscription"
        else:
            fields = self._imported.queues.setdefault(name, {})
            why = f"queue {name}"
        self._imported.note(Verdict.TAKEN, line, about, why)
        for each in settings:
            key, _, text = each.partition("=")
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
        elif _OFF.get(key) == value.lower():
            imported.note(Verdict.TAKEN, line, about, "nothing to do")
        else:
            why = _NO_EQUIVALENT.get(key, "not a setting that is known here")
            imported.note(Verdict.NONE, line, about, why)

    def _number(self, line: int, key: str, value: str) -> int:
        number = _parsed(value)
        if number is None:
            raise CannotImport(
                self._imported.source, line,
                f"{key} = {value[:60]!r} is not a number, such as 1000 or 10m",
            )  # fmt: skip
        return number

    def finish(self) -> None:
        """Declare what is created automatically, and say what holds without a limitBehavior."""
        imported = self._imported
        named = [*imported.queues.items(), *imported.settings.items(), ("#", self._auto)]
        limited = [
            (name, fields)
            for name, fields in named
            if "when_full" not in fields
            and any(cast("int", fields.get(limit, -1)) >= 0 for limit in _FILLS)
        ]
        for name, fields in limited:
            fields["when_full"] = _BEHAVIOURS[_DEFAULT_BEHAVIOUR]
            why = f"when_full: reject_newest; Open MQ's default is {_DEFAULT_BEHAVIOUR}"
            imported.note(Verdict.TAKEN, 0, f"destination {name} without limitBehavior", why)
        if self._auto:
            imported.settings["#"] = self._auto
        if self._auto and self._creates["queue"]:
            imported.queues.setdefault("#", {})


def _verb(words: list[str]) -> list[str]:
    """The command of imqcmd and its object; options may precede and follow them."""
    for index, word in enumerate(words[1:], 1):
        if word in _VERBS:
            return words[index : index + 2]
    return []


def _parsed(value: str) -> int | None:
    """A number with its unit, in bytes or messages; None: it is none."""
    found = re.fullmatch(r"(-?\d{1,18})\s*([bkm]?)", value.lower())
    return int(found[1]) * _UNITS[found[2]] if found else None
