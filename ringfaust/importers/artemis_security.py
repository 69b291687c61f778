"""`security-settings` of broker.xml: permissions of roles become ACLs of Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ringfaust.importers.artemis_values import (
    INCLUDE,
    OF_THE_BROKER,
    Wildcards,
    note_unknown,
    placeholder,
)
from ringfaust.importers.imported import Imported, Verdict, covers
from ringfaust.importers.xml_file import Element

_OPERATE = ("manage", "edit")
_SINGLE = frozenset(
    {
        "browse", "view", "createDurableQueue", "deleteDurableQueue", "createNonDurableQueue",
        "deleteNonDurableQueue", "createAddress", "deleteAddress",
    }
)  # fmt: skip
"""Rights to one operation each. Here one right is for all of them, and for all queues."""


@dataclass(frozen=True, slots=True)
class _Senders:
    """The roles that may send, by match."""

    by_pattern: dict[str, set[str]] = field(default_factory=dict)
    by_beginning: dict[str, set[str]] = field(default_factory=dict)
    """Of matches that are not read here: the roles of all that begin with the same text."""
    managers: list[str] = field(default_factory=list)
    """The matches that decide who manages the broker: those of its management address."""
    decided: dict[str, list[str]] = field(default_factory=dict)
    """By queue, what was found to decide about it."""

    def deciding(self, queue: str) -> list[str]:
        """Return the matches of a queue that no other of its matches is narrower than."""
        if queue not in self.decided:
            self.decided[queue] = _narrowest(self.by_pattern, queue)
        return self.decided[queue]

    def may_differ(self, pattern: str, queue: str, role: str) -> bool:
        """Return whether a match that is not read may deny what `pattern` allows."""
        return pattern != queue and any(
            queue.startswith(beginning) and role not in roles
            for beginning, roles in self.by_beginning.items()
        )


def _narrowest(matches: Iterable[str], name: str) -> list[str]:
    matching = [match for match in matches if covers(match, name)]
    return [
        match
        for match in matching
        if not any(each != match and covers(match, each) for each in matching)
    ]


def read_security(core: Element, wildcards: Wildcards, imported: Imported) -> None:
    """Read `security-settings`."""
    sections = list(core.all("security-settings"))
    tags = "security-setting", INCLUDE
    given = [each for section in sections for each in section.all(*tags)]
    patterns = [_pattern(each.attributes.get("match", ""), wildcards) for each in given]
    address = core.text_of("management-address") or OF_THE_BROKER[0]
    senders = _Senders(managers=_narrowest(filter(None, patterns), address))
    for element in given:
        match = element.attributes.get("match", "")
        if _is_unknown(element):  # it may be narrower than any match of the file
            senders.by_beginning[match.partition("${")[0]] = set()
            continue
        roles = {
            role
            for permission in element.all("permission")
            if permission.attributes.get("type") == "send"
            for role in _roles(permission)
        }
        if match.startswith(OF_THE_BROKER):
            continue
        if (pattern := _pattern(match, wildcards)) is not None:
            senders.by_pattern[pattern] = roles
        else:
            beginning = wildcards.beginning(match)
            senders.by_beginning[beginning] = roles & senders.by_beginning.get(beginning, roles)
    for section in sections:
        every = {each.tag for each in section.children}
        note_unknown(section, "security-settings", imported, children=every)
        for element in section.children:
            if not _is_unknown(element):
                _read(element, senders, wildcards, imported)


def _is_unknown(element: Element) -> bool:
    """Another file, or a match with a property of the broker's machine; both have their line."""
    return element.tag == INCLUDE or "${" in element.attributes.get("match", "")


def _pattern(match: str, wildcards: Wildcards) -> str | None:
    """Return a match in our syntax; None: it is not read here, such as `ord*`."""
    pattern = wildcards.translate(match)
    special = ("*", "#", wildcards.any_words, wildcards.single_word)
    words = pattern.split(".") if pattern is not None else []
    if any(len(word) > 1 and any(each in word for each in special) for word in words):
        return None
    return pattern


def _roles(permission: Element) -> list[str]:
    given = permission.attributes.get("roles", "").split(",")
    return [role.strip() for role in given if role.strip()]


def _read(element: Element, senders: _Senders, wildcards: Wildcards, imported: Imported) -> None:
    if element.tag != "security-setting":
        name = element.attributes.get("from") or element.attributes.get("class-name") or ""
        about = f"security-settings, {element.tag} {name}".strip()
        why = "Kafka authenticates users, and its ACLs name users, not roles"
        imported.note(Verdict.NONE, element.line, about, why)
        return
    match = element.attributes.get("match", "")
    pattern, about = _pattern(match, wildcards), f"security-setting {match}"
    note_unknown(element, about, imported, children=("permission",), attributes=("match",))
    if element.first("permission") is None:
        why = "nobody may do anything, as with Kafka's ACLs"
        imported.note(Verdict.TAKEN, element.line, about, why)
    for permission in element.all("permission"):
        kind = permission.attributes.get("type", "")
        note_unknown(permission, f"{about}, {kind}", imported, attributes=("type", "roles"))
        for role in _roles(permission):
            topics = list(_topics(pattern, role, senders, imported)) if pattern else []
            if kind == "manage" and pattern not in senders.managers:
                why = "no right, as in Artemis: another match is that of its management address"
                said = f"{about}, {kind} for role {role}"
                imported.note(Verdict.TAKEN, permission.line, said, why)
                continue
            _permit(permission, match, topics, kind=kind, role=role, imported=imported)
        if not _roles(permission):
            why = "nobody may, as with Kafka's ACLs"
            imported.note(Verdict.TAKEN, permission.line, f"{about}, {kind} for no role", why)


def _topics(pattern: str, role: str, senders: _Senders, imported: Imported) -> Iterator[str]:
    """Yield the topics that a role may write to by this match.

    Of the matches of a queue the most specific one counts alone. The records of a topic with a
    template name any queue, so a role needs the right for all of them. A match that is not read may
    be the more specific one.
    """
    declared = (*imported.queues, *imported.addresses)
    for topic, target in imported.routes.items():
        queue = imported.detours.get(topic, target)
        if "{" in queue:
            everyone = (*senders.by_pattern.values(), *senders.by_beginning.values())
            is_anywhere = all(role in roles for roles in everyone)
            if is_anywhere and all(covers(pattern, name) for name in declared):
                yield topic
        elif pattern in senders.deciding(queue) and not senders.may_differ(pattern, queue, role):
            if all(role in senders.by_pattern[match] for match in senders.deciding(queue)):
                yield topic


def _permit(
    permission: Element, match: str, topics: list[str], *, kind: str, role: str, imported: Imported
) -> None:
    about = f"security-setting {match}, {kind} for role {role}"
    line = permission.line
    if unknown := placeholder(role):
        why = f"the property {unknown} is not known here: write its value in its place"
        imported.note(Verdict.NONE, line, about, why)
        return
    if not imported.is_user(role, line, about):
        return
    if kind == "send" and not topics:
        why = (
            "no topic is for the names that it, and no narrower match, is for, or a match that is "
            "not read here may be narrower: give rights by hand"
        )
        imported.note(Verdict.NONE, line, about, why)
    elif kind == "send":
        for topic in topics:
            imported.allow(role, topic, "Write")
        why = f"User:{role} may write to {', '.join(topics)}; ACLs name users, not roles"
        imported.note(Verdict.CHANGED, line, about, why)
    elif kind == "consume" and match.startswith(OF_THE_BROKER):
        why = "an address of the broker itself; here the right to receive is one for all queues"
        imported.note(Verdict.NONE, line, about, why)
    elif kind == "consume":
        imported.allow_receiving(role)
        why = f"User:{role} may attach and receive, from all queues; ACLs name users, not roles"
        imported.note(Verdict.CHANGED, line, about, why)
    elif kind in _OPERATE:
        imported.allow_control(role)
        why = f"User:{role} may write commands, for all queues; ACLs name users, not roles"
        imported.note(Verdict.CHANGED, line, about, why)
    elif kind in _SINGLE:
        why = (
            "everyone who may consume or operate may do it; the right to write commands is for all "
            "queues and operations, so give it by hand to a role that has neither"
        )
        imported.note(Verdict.NONE, line, about, why)
    else:
        imported.note(Verdict.NONE, line, about, "not a permission that is known here")
