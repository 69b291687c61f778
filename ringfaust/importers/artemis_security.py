"""`security-settings` of broker.xml: permissions of roles become ACLs of Kafka."""

from __future__ import annotations

import re
from shlex import quote

from ringfaust.importers.artemis_values import Wildcards, note_unknown
from ringfaust.importers.imported import Imported, Verdict
from ringfaust.importers.xml_file import Element
from ringfaust.kafka.names import topic_name
from ringfaust.protocol.records import Role

_OWN = "ringfaust"
_OPERATE = frozenset(
    {
        "browse", "manage", "view", "edit", "createDurableQueue", "deleteDurableQueue",
        "createNonDurableQueue", "deleteNonDurableQueue", "createAddress", "deleteAddress",
    }
)  # fmt: skip
_PRINCIPAL = re.compile(r"[\w.@+-]+")


def read_security(section: Element, wildcards: Wildcards, imported: Imported) -> None:
    """Read `security-settings`."""
    note_unknown(
        section, "security-settings", imported, children={each.tag for each in section.children}
    )
    for element in section.children:
        if element.tag != "security-setting":
            name = element.attributes.get("from") or element.attributes.get("class-name") or ""
            about = f"security-settings, {element.tag} {name}".strip()
            why = "Kafka authenticates users, and its ACLs name users, not roles"
            imported.note(Verdict.NONE, element.line, about, why)
            continue
        match = element.attributes.get("match", "")
        pattern, about = wildcards.translate(match), f"security-setting {match}"
        note_unknown(element, about, imported, children=("permission",), attributes=("match",))
        if element.first("permission") is None:
            why = "nobody may do anything, as with Kafka's ACLs"
            imported.note(Verdict.TAKEN, element.line, about, why)
        for permission in element.all("permission"):
            kind = permission.attributes.get("type", "")
            note_unknown(permission, f"{about}, {kind}", imported, attributes=("type", "roles"))
            given = permission.attributes.get("roles", "").split(",")
            roles = [role.strip() for role in given if role.strip()]
            for role in roles:
                _permit(permission, match, pattern, kind=kind, role=role, imported=imported)
            if not roles:
                why = "nobody may, as with Kafka's ACLs"
                imported.note(Verdict.TAKEN, permission.line, f"{about}, {kind} for no role", why)


def _permit(
    permission: Element,
    match: str,
    pattern: str | None,
    *,
    kind: str,
    role: str,
    imported: Imported,
) -> None:
    about = f"security-setting {match}, {kind} for role {role}"
    line = permission.line
    if not _PRINCIPAL.fullmatch(role):
        why = "a user's name in these commands has letters, digits and . _ @ + -"
        imported.note(Verdict.NONE, line, about, why)
    elif kind == "send" and pattern is None:
        why = "patterns here are words between dots, where * and # stand for whole words"
        imported.note(Verdict.NONE, line, about, why)
    elif kind == "send" and pattern is not None:
        topics = list(imported.topics_for(pattern))
        for topic in topics:
            allow(imported, role, topic, "Write")
        if not topics:
            imported.note(Verdict.NONE, line, about, "no declared queue or address matches")
            return
        why = f"User:{role} may write to {_listed(topics)}; ACLs name users, not roles"
        imported.note(Verdict.CHANGED, line, about, why)
    elif kind == "consume":
        allow_control(imported, role)
        allow(imported, role, topic_name(_OWN, Role.DISPATCHED), "Read")
        why = f"User:{role} may attach and receive, from all queues; ACLs name users, not roles"
        imported.note(Verdict.CHANGED, line, about, why)
    elif kind in _OPERATE:
        allow_control(imported, role)
        why = f"User:{role} may write commands, for all queues; ACLs name users, not roles"
        imported.note(Verdict.CHANGED, line, about, why)
    else:
        imported.note(Verdict.NONE, line, about, "not a permission that is known here")


def allow_control(imported: Imported, user: str) -> None:
    """Let a user write commands and read the answers."""
    allow(imported, user, topic_name(_OWN, Role.CONTROL), "Write")
    allow(imported, user, topic_name(_OWN, Role.REPLIES), "Read")


def allow(imported: Imported, user: str, topic: str, operation: str) -> None:
    """Let a user read or write a topic."""
    acl = (
        f"--add --allow-principal {quote(f'User:{user}')} --operation {operation} "
        f"--operation Describe --topic {quote(topic)}"
    )
    if acl not in imported.acls:
        imported.acls.append(acl)


def _listed(topics: list[str]) -> str:
    more = f" and {len(topics) - 3} more" if len(topics) > 3 else ""
    return ", ".join(topics[:3]) + more
