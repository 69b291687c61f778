"""What an import found: the configuration to write, and one finding for each setting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from shlex import quote
from typing import cast

from ringfaust.core import limits
from ringfaust.core.address import SEPARATOR
from ringfaust.core.patterns import Pattern, is_pattern
from ringfaust.core.settings import QueueSpec, stored_names
from ringfaust.errors import BadSetting, RingfaustError
from ringfaust.kafka.names import topic_name
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Role

_FILE_BYTES = 10 << 20
"""Size of the largest file that an import of configuration reads."""
BACKUPS = 100
"""Backup consumers of a queue with one active consumer: the other brokers admit any number."""
_OWN = "ringfaust"
"""`application` in the worker.yaml that is written."""
_USER = re.compile(r"[\w.@+-]+")

Fields = dict[str, object]


class CannotImport(RingfaustError):
    """A file cannot be imported; nothing was written. The text names the line if there is one."""

    def __init__(self, source: Path | str, line: int, text: str) -> None:
        where = f"{source}, line {line}" if line else str(source)
        super().__init__(f"{where}: {text}")
        self.line = line
        self.findings: list[ImportFinding] = []
        """What was found until then."""


def read_file(path: Path) -> bytes:
    """Read a file, which may be a pipe.

    Raises:
        CannotImport: it is larger than a configuration can be.
    """
    with path.open("rb") as file:
        found = file.read(_FILE_BYTES + 1)
    if len(found) > _FILE_BYTES:
        raise CannotImport(path, 0, f"is larger than {_FILE_BYTES >> 20} MiB")
    return found


class Verdict(StrEnum):
    """What became of a setting."""

    TAKEN = "taken over"
    CHANGED = "changed"
    NONE = "no equivalent"


@dataclass(frozen=True, slots=True)
class ImportFinding:
    """What became of one setting of the other broker."""

    verdict: Verdict
    line: int
    """Line of the file, from 1; 0: unknown."""
    setting: str
    """What the file says, such as `address-setting #, max-delivery-attempts = 3`."""
    text: str
    """What it is now, what differs, or what to do instead."""

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{self.verdict:<13}  {where}{self.setting}: {self.text}"


@dataclass(slots=True)
class Imported:
    """The configuration that an import writes, and how it came about."""

    source: Path
    queues: dict[str, Fields] = field(default_factory=dict)
    addresses: dict[str, dict[str, object]] = field(default_factory=dict)
    settings: dict[str, Fields] = field(default_factory=dict)
    routes: dict[str, str] = field(default_factory=dict)
    """The queue, or the template of its name, by topic."""
    detours: dict[str, str] = field(default_factory=dict)
    """By topic the name that its records are sent to, where a divert leads them elsewhere. A queue
    or an address of that name gets no topic, for nothing that is sent to it reaches it."""
    acls: dict[str, None] = field(default_factory=dict)
    """Arguments of kafka-acls.sh, without the brokers, in order."""
    findings: list[ImportFinding] = field(default_factory=list)

    @contextmanager
    def kept_when_refused(self) -> Iterator[None]:
        """Give an error that ends the import what was found until then."""
        try:
            yield
        except CannotImport as error:
            error.findings = self.findings
            raise

    def note(self, verdict: Verdict, line: int, setting: str, text: str) -> None:
        """Record what became of a setting."""
        self.findings.append(ImportFinding(verdict, line, setting, text))

    def note_other(
        self, known: Mapping[str, tuple[str | None, str]], name: str, value: str, line: int,
        setting: str,
    ) -> None:  # fmt: skip
        """Record why a setting has no equivalent, or that it is off, as it always is here.

        `known`: by name, the value that is off (None: there is none), and why.
        """
        off, why = known.get(name, (None, "not a setting that is known here"))
        if off is not None and value.lower() == off.lower():
            self.note(Verdict.TAKEN, line, setting, "nothing to do")
        else:
            self.note(Verdict.NONE, line, setting, why)

    def set(
        self, fields: Fields, name: str, value: object, line: int, setting: str, *,
        verdict: Verdict = Verdict.TAKEN, more: str = "",
    ) -> None:  # fmt: skip
        """Set a queue's field, and record that; if the value is not allowed, record why.

        `more`: what follows name and value in the text of the finding.
        """
        try:
            QueueSpec().with_fields(stored_names({name: value}))
        except BadSetting as error:
            self.note(Verdict.NONE, line, setting, f"{name} {error.advice}")
            return
        fields[name] = value
        self.note(verdict, line, setting, f"{name}: {value}{more}")

    def is_name(self, name: str, line: int, setting: str, *, patterns: bool = True) -> bool:
        """Return whether a queue or address can have this name; record it if not.

        `patterns`: whether * and # have the same meaning in the other broker's names.
        """
        if not name or len(name) > limits.NAME_CHARS or SEPARATOR in name or "\0" in name:
            why = f"a name has 1 to {limits.NAME_CHARS} characters and no ::"
        elif any(len(word) > 1 and {"*", "#"} & set(word) for word in name.split(".")):
            why = "* and # stand for whole words between dots"
        elif {"{", "}"} & set(name):
            why = "{ and } are for the placeholders of a route"
        elif not patterns and is_pattern(name):
            why = "* and # make it a pattern of many names"
        else:
            return True
        self.note(Verdict.NONE, line, setting, f"the name is not possible here: {why}")
        return False

    def note_dead_letters(self, named: Iterable[str]) -> None:
        """Say of the queues and addresses that got dead letters that nothing sends them any more.

        `named`: also what is not imported.
        """
        subscribed = {name for each in self.addresses for name in self.members(each)}
        for name in sorted({*named} & {*self.queues, *self.addresses, *subscribed}):
            why = "a queue like any other: dead messages go to the topic ringfaust.dead instead"
            self.note(Verdict.CHANGED, 0, f"dead letters and expired messages to {name}", why)

    def members(self, address: str) -> dict[str, Fields]:
        """Return the declared queues of an address."""
        return cast("dict[str, Fields]", self.addresses[address].get("subscriptions", {}))

    def subscriptions(self, address: str) -> dict[str, Fields]:
        """Return the queues of an address; it is declared, and a plain queue is one of its own."""
        declared = self.addresses.setdefault(address, {})
        queues = cast("dict[str, Fields]", declared.setdefault("subscriptions", {}))
        if address in self.queues:
            queues[address] = self.queues.pop(address)
            why = f"address {address} with other queues; consumers attach {address}::{address}"
            self.note(Verdict.CHANGED, 0, f"queue {address}", why)
        return queues

    def admit_consumers(self) -> None:
        """Let the queues of each address have several consumers, as other brokers do (R70)."""
        for name, address in self.addresses.items():
            for fields in self.members(name).values() if "routing" not in address else ():
                if fields.get("max_active_consumers", -1) == -1:
                    fields["shared"] = True

    def allow_control(self, user: str) -> None:
        """Let a user write commands and read the answers."""
        self.allow(user, topic_name(_OWN, Role.CONTROL), "Write")
        self.allow(user, topic_name(_OWN, Role.REPLIES), "Read")

    def allow_receiving(self, user: str) -> None:
        """Let a user attach to queues and receive."""
        self.allow_control(user)
        self.allow(user, topic_name(_OWN, Role.DISPATCHED), "Read")

    def allow(self, user: str, topic: str, operation: str) -> None:
        """Let a user read or write a topic."""
        acl = (
            f"--add --allow-principal {quote(f'User:{user}')} --operation {operation} "
            f"--operation Describe --topic {quote(topic)}"
        )
        self.acls[acl] = None

    def is_user(self, name: str, line: int, setting: str) -> bool:
        """Return whether these commands can name a user; record it if not."""
        if _USER.fullmatch(name):
            return True
        why = "a user's name in these commands has letters, digits and . _ @ + -"
        self.note(Verdict.NONE, line, setting, why)
        return False

    def add_routes(self) -> None:
        """Give every queue and address a topic; others share another."""
        named = {name: None for name in (*self.queues, *self.addresses) if not is_pattern(name)}
        unreached = {*self.detours.values()} & {*named}
        ours = {topic_name(_OWN, role) for role in Role}
        taken = {_metric(topic): 1 for topic in (*self.routes, *ours)}
        has_shared = self.addresses or unreached or any(map(is_pattern, self.queues))
        shared = _free_topic("messages", taken) if has_shared else ""  # the name that lines say
        for name in named:
            if name in unreached:
                continue
            topic = _free_topic(name, taken)
            self.routes[topic] = name
            if topic != name:
                why = f"{topic}, for Kafka has no such name, or another topic is too like it"
                self.note(Verdict.CHANGED, 0, f"the topic of {name}", why)
        if shared:
            self.routes[shared] = f"{{header:{h.QUEUE}}}"

    def queues_data(self) -> dict[str, object]:
        """Return the content of queues.yaml."""
        data: dict[str, object] = {
            "routes": [{"topic": topic, "queue": queue} for topic, queue in self.routes.items()],
            "queues": self.queues,
            "addresses": self.addresses,
            "settings": {name: fields for name, fields in self.settings.items() if fields},
        }
        return {name: value for name, value in data.items() if value}


compiled = lru_cache(10_000)(Pattern)
"""A pattern, compiled once."""


def overlap(one: str, other: str) -> bool:
    """Return whether one of two patterns covers the other."""
    mine, theirs = compiled(one), compiled(other)
    return mine.matches(theirs.words) or theirs.matches(mine.words)


def covers(wider: str, other: str) -> bool:
    """Return whether a pattern matches all names that another one matches."""
    pattern = compiled(wider)
    words = other.split(".")
    return all(
        pattern.matches([part for word in words for part in (some if word == "#" else [word])])
        for some in (([], ["-"], ["-", "-"]) if "#" in words else ([],))
    )


def topic_of(name: str) -> str:
    """Return the name of a queue in the characters of a topic's name, and not too long for one."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:240]


def _free_topic(name: str, taken: dict[str, int]) -> str:
    """Return a valid topic name that differs from those taken, also in Kafka's metrics.

    `taken`: by name in metrics, the number that was tried last; it takes in the new one.
    """
    base = topic_of(name)
    base = base if base.strip(".") else "queue"
    topic, number = base, taken.get(_metric(base), 1)
    while _metric(topic) in taken:
        number += 1
        topic = f"{base}-{number}"
    taken[_metric(base)] = number
    taken.setdefault(_metric(topic), 1)
    return topic


def _metric(topic: str) -> str:
    return topic.replace(".", "_")
