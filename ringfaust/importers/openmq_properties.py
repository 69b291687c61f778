"""Properties of an Open MQ broker: those of destinations that it creates by itself, and others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, cast

from ringfaust.core.settings import QueueSpec
from ringfaust.importers.imported import Fields, Imported, Verdict
from ringfaust.importers.openmq_settings import (
    BEHAVIOURS,
    DEAD,
    DEFAULT_BEHAVIOUR,
    FILLS,
    LIMITS,
    number_of,
    parsed,
    read_setting,
)

_MESSAGE_BYTES = ("imq.message.max_size", "imq.autocreate.destination.maxBytesPerMsg")
"""Limits of the broker and of a destination: a message has to keep both."""
_DEFAULT_LIMITS = {
    "maxNumMsgs": "100000 messages",
    "maxTotalMsgBytes": "10 GiB",
    "maxBytesPerMsg": "10 MiB a message",
}
"""Of a destination that Open MQ creates by itself (DestinationList.java)."""
_DEFAULTS = QueueSpec()
_AUTO = re.compile(r"imq\.autocreate\.(queue|topic|destination)(?:\.(\w+))?")


class Property(NamedTuple):
    """A property of the broker."""

    line: int
    name: str
    value: str


def shown(name: str, value: str) -> str:
    """Return a property for its line, without what follows a password: in its name, or an URL."""
    if "password" in f"{name}{value}".lower():
        return re.split(r"[^\w.-]", name)[0][:100]
    return f"{name[:100]} = {value[:100]}"


class Properties:
    """Reads the properties; of one that is given several times the last counts."""

    def __init__(self, imported: Imported, given: Sequence[Property]) -> None:
        self._imported = imported
        self._creates = {"queue": True, "topic": True}
        self._auto: Fields = {}
        self._last = {each.name: each for each in given}
        self._survey({each.name: each.value for each in given})

    def _survey(self, given: dict[str, str]) -> None:
        """Read what decides about other properties, wherever it stands."""
        for kind in self._creates:
            self._creates[kind] = given.get(f"imq.autocreate.{kind}", "true").lower() == "true"
        if given.get("imq.autocreate.topic") and self._creates == {"queue": False, "topic": True}:
            self._imported.addresses["#"] = {}
        limits = [parsed(value) for name, value in given.items() if name in _MESSAGE_BYTES]
        self._most_bytes = min(
            (each for each in limits if each is not None and each > 0), default=-1
        )
        self._most_of_the_broker = parsed(given.get(_MESSAGE_BYTES[0], "-1")) or -1

    def read(self, given: Property) -> None:
        """Read a property.

        Raises:
            CannotImport: its value is not what it should be.
        """
        line, name, value = given
        about = shown(name, value)
        found = _AUTO.fullmatch(name)
        if (last := self._last[name]) is not given:
            why = f"line {last.line} sets it again, and counts alone"
            self._imported.note(Verdict.NONE, line, about, why)
            return
        if found and found[2] is None and found[1] != "destination":
            self._note_creation(line, about, found[1])
        elif (
            name in _MESSAGE_BYTES
            and number_of(self._imported, line, "maxBytesPerMsg", value) != self._most_bytes
        ):
            why = (
                f"max_message_bytes: {self._most_bytes}; the smaller of two limits holds, as there"
            )
            self._imported.note(Verdict.CHANGED, line, about, why)
        elif name in _MESSAGE_BYTES:
            read_setting(self._imported, line, about, ("maxBytesPerMsg", value), self._auto)
        elif found and found[2] and found[1] == "topic" and found[2] in (*LIMITS, "limitBehavior"):
            why = "Open MQ has this limit for destinations, not for topics alone"
            self._imported.note(Verdict.NONE, line, about, why)
        elif found and found[2]:
            read_setting(self._imported, line, about, (found[2], value), self._auto)
        elif name.startswith("imq.destination.DMQ") or name == "imq.destination.logDeadMsgs":
            self._imported.note(Verdict.CHANGED, line, about, DEAD)
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
        """Say which limits a destination of an unknown name has, though the file does not."""
        missing = [
            text
            for name, text in _DEFAULT_LIMITS.items()
            if f"imq.autocreate.destination.{name}" not in self._last
        ]
        if self._creates["queue"]:
            self._imported.queues["#"] = {}
        if missing and "#" in (*self._imported.queues, *self._imported.addresses):
            about = "imq.autocreate.destination, not set"
            why = (
                "the pattern #, for Open MQ creates what is unknown; its default limits of "
                f"{', '.join(missing)} are not set here"
            )
            self._imported.note(Verdict.CHANGED, 0, about, why)

    def finish(self) -> None:
        """Declare what is created automatically, and say what holds without a limitBehavior."""
        imported = self._imported
        named = [*imported.queues.items(), *imported.settings.items(), ("#", self._auto)]
        limited = [
            (name, fields)
            for name, fields in named
            if "when_full" not in fields
            and any(cast("int", fields.get(limit, -1)) >= 0 for limit in FILLS)
        ]
        for name, fields in limited:
            fields["when_full"] = BEHAVIOURS[DEFAULT_BEHAVIOUR]
            why = f"when_full: reject_newest; Open MQ's default is {DEFAULT_BEHAVIOUR}"
            imported.note(Verdict.TAKEN, 0, f"destination {name} without limitBehavior", why)
        for name, fields in named:
            if name != "#":
                self._keep_own(name, fields)
        if self._auto:
            imported.settings["#"] = self._auto
        if self._auto and self._creates["queue"]:
            imported.queues.setdefault("#", {})

    def _keep_own(self, name: str, fields: Fields) -> None:
        """Give a destination that the file creates what `#` would change.

        What is for destinations that Open MQ creates by itself is not for this one.
        """
        own = {key: fields.get(key, getattr(_DEFAULTS, key)) for key in self._auto}
        if (most := self._most_of_the_broker) > 0:
            least = cast("int", own["max_message_bytes"])
            own["max_message_bytes"] = min(most, least) if least > 0 else most
        own = {key: each for key, each in own.items() if each != fields.get(key, self._auto[key])}
        if own:
            fields |= own
            said = ", ".join(f"{key}: {value}" for key, value in own.items())
            why = f"{said}; the limits of imq.autocreate are for other destinations, as there"
            self._imported.note(Verdict.TAKEN, 0, f"destination {name}", why)
