"""Settings of a destination of Open MQ, and what they are here."""

from __future__ import annotations

import re

from ringfaust.importers.imported import BACKUPS, CannotImport, Fields, Imported, Verdict

BEHAVIOURS = {
    "REMOVE_OLDEST": "drop_oldest",
    "REMOVE_LOW_PRIORITY": "drop_lowest_priority",
    "REJECT_NEWEST": "reject_newest",
    "FLOW_CONTROL": "block",
}
LIMITS = {
    "maxNumMsgs": "max_messages",
    "maxTotalMsgBytes": "max_bytes",
    "maxBytesPerMsg": "max_message_bytes",
    "maxNumActiveConsumers": "max_active_consumers",
    "maxNumBackupConsumers": "max_backup_consumers",
}
_UNLIMITED_AT_0 = ("maxNumMsgs", "maxTotalMsgBytes", "maxBytesPerMsg")
"""Of which 0 is no limit (Destination.java, `setCapacity`)."""
FILLS = ("max_messages", "max_bytes")
"""Limits at which a behaviour counts."""
DEFAULT_BEHAVIOUR = "REJECT_NEWEST"
"""Destination.java, `limit = DestLimitBehavior.REJECT_NEWEST`."""
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20}
_OTHERS = {
    "maxNumProducers": ("-1", "any client may write to a Kafka topic that its ACLs admit"),
    "isLocalOnly": ("false", "all workers serve all queues"),
    "localOnly": ("false", "all workers serve all queues"),
    "localDeliveryPreferred": ("false", "all workers serve all queues"),
    "consumerFlowLimit": (None, "a consumer chooses its credit"),
    "useDMQ": ("true", "dead messages of all queues go to the topic ringfaust.dead"),
    "validateXMLSchemaEnabled": ("false", "messages are not inspected"),
    "XMLSchemaURIList": (None, "messages are not inspected"),
    "reloadXMLSchemaOnFailure": (None, "messages are not inspected"),
}
DEAD = "dead messages of all queues go to the topic ringfaust.dead, whole"


def read_setting(
    imported: Imported, line: int, about: str, given: tuple[str, str], fields: Fields, *,
    is_topic: bool = False,
) -> None:  # fmt: skip
    """Read a setting, which is given by its name and value, into the fields of a queue.

    `is_topic`: the fields are those of each subscription of a topic.

    Raises:
        CannotImport: the value is not what it should be.
    """
    key, value = given
    if key == "limitBehavior":
        when_full = BEHAVIOURS.get(value.upper())
        if when_full is None:
            raise CannotImport(
                imported.source, line,
                f"limitBehavior = {value[:60]!r} is none of {', '.join(BEHAVIOURS)}",
            )  # fmt: skip
        fields["when_full"] = when_full
        imported.note(Verdict.TAKEN, line, about, f"when_full: {when_full}")
    elif key in LIMITS:
        number = number_of(imported, line, key, value)
        if key == "maxNumBackupConsumers" and number < 0:
            more = ": Open MQ admits any number"
            imported.set(
                fields, LIMITS[key], BACKUPS, line, about, verdict=Verdict.CHANGED, more=more
            )
        elif is_topic and LIMITS[key] in FILLS and number != -1:
            more = ", for each subscription, not for the topic"
            imported.set(
                fields, LIMITS[key], number, line, about, verdict=Verdict.CHANGED, more=more
            )
        else:
            imported.set(fields, LIMITS[key], number, line, about)
    else:
        imported.note_other(_OTHERS, key, value, line, about)


def number_of(imported: Imported, line: int, key: str, value: str) -> int:
    """Return a number of bytes, messages or consumers; -1: no limit.

    Raises:
        CannotImport: it is none.
    """
    number = parsed(value)
    if number is None:
        raise CannotImport(
            imported.source, line,
            f"{key} = {value[:60]!r} is not a number, such as 1000 or 10m",
        )  # fmt: skip
    if number < -1 or (number == 0 and key in _UNLIMITED_AT_0):
        return -1
    return number


def parsed(value: str) -> int | None:
    """Return a number with its unit, in bytes or messages; None: it is none."""
    found = re.fullmatch(r"(-?\d{1,18})\s*([bkm]?)", value.lower())
    return int(found[1]) * _UNITS[found[2]] if found else None
