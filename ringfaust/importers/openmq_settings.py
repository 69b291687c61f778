"""Settings of a destination of Open MQ, and what they are here."""

from __future__ import annotations

import re

from ringfaust.importers.imported import CannotImport, Fields, Imported, Verdict

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
FILLS = ("max_messages", "max_bytes")
"""Limits at which a behaviour counts."""
DEFAULT_BEHAVIOUR = "REJECT_NEWEST"
"""Destination.java, `limit = DestLimitBehavior.REJECT_NEWEST`."""
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
DEAD = "dead messages of all queues go to the topic ringfaust.dead, whole"


def read_setting(
    imported: Imported, line: int, about: str, given: tuple[str, str], fields: Fields
) -> None:
    """Read a setting, which is given by its name and value, into the fields of a queue.

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
        imported.set(fields, LIMITS[key], number_of(imported, line, key, value), line, about)
    elif _OFF.get(key) == value.lower():
        imported.note(Verdict.TAKEN, line, about, "nothing to do")
    else:
        why = _NO_EQUIVALENT.get(key, "not a setting that is known here")
        imported.note(Verdict.NONE, line, about, why)


def number_of(imported: Imported, line: int, key: str, value: str) -> int:
    """Return a number of bytes or messages.

    Raises:
        CannotImport: it is none.
    """
    number = parsed(value)
    if number is None:
        raise CannotImport(
            imported.source, line,
            f"{key} = {value[:60]!r} is not a number, such as 1000 or 10m",
        )  # fmt: skip
    return number


def parsed(value: str) -> int | None:
    """Return a number with its unit, in bytes or messages; None: it is none."""
    found = re.fullmatch(r"(-?\d{1,18})\s*([bkm]?)", value.lower())
    return int(found[1]) * _UNITS[found[2]] if found else None
