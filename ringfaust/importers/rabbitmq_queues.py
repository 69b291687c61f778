"""Arguments and policies of RabbitMQ's queues."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringfaust.importers.imported import CannotImport, Fields, Imported, ImportFinding, Verdict

BACKUPS = 100
"""Backup consumers of a queue with one active consumer: RabbitMQ admits any number."""
_LIMITED_SINCE, _QUORUM_ATTEMPTS = 4, 21
"""RabbitMQ 4 redelivers a message of a quorum queue 20 times; earlier versions have no limit."""
_PATTERN_CHARS = 250
_PREFIX = re.compile(r"\^?([\w-]+(?:\\?\.[\w-]+)*)\\?\.(?:\.\*)?")
_DEAD = "evicted messages go to the topic ringfaust.evicted, dead ones to ringfaust.dead"
_STORAGE = "Kafka stores and replicates all messages"

_NO_EQUIVALENT = {
    "message-ttl": "the producer sets ringfaust-ttl-ms",
    "expires": "an unused queue stays; delete it with `ringfaust queue delete`",
    "queue-mode": _STORAGE,
    "queue-version": _STORAGE,
    "queue-type": _STORAGE,
    "queue-master-locator": _STORAGE,
    "queue-leader-locator": _STORAGE,
    "ha-mode": _STORAGE,
    "ha-params": _STORAGE,
    "ha-sync-mode": _STORAGE,
    "quorum-initial-group-size": "`replication_factor` in worker.yaml",
    "max-age": "the retention of a stream is that of its Kafka topic",
    "stream-max-segment-size-bytes": "the segments of a stream are those of its Kafka topic",
}


class Policies:
    """The policies of the file. At most one applies to a queue: that of highest priority."""

    def __init__(self, entries: Sequence[Mapping[str, Any]], path: Path) -> None:
        """Compile the patterns.

        Raises:
            CannotImport: one is not a regular expression.
        """
        self._entries: list[tuple[re.Pattern[str], Mapping[str, Any]]] = []
        self._used: set[int] = set()
        for each in entries:
            pattern = str(each.get("pattern", ""))
            try:
                if len(pattern) > _PATTERN_CHARS:
                    raise re.error("too long")
                self._entries.append((re.compile(pattern), each))
            except re.error as error:
                text = f"policy {str(each.get('name'))[:80]!r}: pattern {pattern[:80]!r}: {error}"
                raise CannotImport(path, 0, text) from None

    def of(self, vhost: str, name: str, queue: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the policy of a queue; empty if it has none."""
        kind = str((queue.get("arguments") or {}).get("x-queue-type", "classic"))
        fitting = [
            (index, each)
            for index, (pattern, each) in enumerate(self._entries)
            if str(each.get("vhost", "/")) == vhost
            and str(each.get("apply-to", "all")) in ("all", "queues", f"{kind}_queues")
            and pattern.search(name)
        ]
        if not fitting:
            return {}
        index, best = max(fitting, key=lambda entry: _priority(entry[1]))
        self._used.add(index)
        return best

    def leftovers(self, imported: Imported) -> None:
        """Turn the policies that no queue has into settings by pattern."""
        for index, (_, each) in enumerate(self._entries):
            if index in self._used:
                continue
            about = f"policy {str(each.get('name'))[:80]}, pattern = {each.get('pattern')}"
            ours = _our_pattern(str(each.get("pattern", "")))
            if ours is None or str(each.get("apply-to", "all")) == "exchanges":
                why = "no queue in the file matches, and the pattern has no form here"
                imported.note(Verdict.NONE, 0, about, why)
                continue
            imported.note(Verdict.CHANGED, 0, about, f"settings of the pattern {ours}")
            fields = imported.settings.setdefault(ours, {})
            _read(each.get("definition") or {}, about, fields, imported)


def _priority(policy: Mapping[str, Any]) -> int:
    priority = policy.get("priority", 0)
    return priority if isinstance(priority, int) else 0


def _our_pattern(pattern: str) -> str | None:
    if pattern in ("", ".*", "^.*", "^.*$", "^"):
        return "#"
    found = _PREFIX.fullmatch(pattern)
    return found[1].replace("\\", "") + ".#" if found else None


def set_attempts(
    queue: Mapping[str, Any], fields: Fields, version: int, noted: set[str], imported: Imported
) -> None:
    """What RabbitMQ does without a delivery limit: try for ever, or 21 times in a quorum queue.

    `version`: of RabbitMQ. `noted`: the types of queue that have their line.
    """
    kind = str((queue.get("arguments") or {}).get("x-queue-type", "classic"))
    if "max_attempts" in fields or kind not in ("classic", "quorum"):
        return
    is_limited = kind == "quorum" and version >= _LIMITED_SINCE
    fields["max_attempts"] = _QUORUM_ATTEMPTS if is_limited else -1
    if kind in noted:
        return
    noted.add(kind)
    about = f"{kind} queues without delivery-limit"
    why = (
        f"max_attempts: {fields['max_attempts']}, as in RabbitMQ {version}; the default here is 10"
    )
    imported.note(Verdict.TAKEN, 0, about, why)


def queue_fields(
    queue: Mapping[str, Any], name: str, policy: Mapping[str, Any], imported: Imported
) -> Fields:
    """Return a queue's fields: of its arguments, else of its policy."""
    arguments = {
        str(key).removeprefix("x-"): value for key, value in (queue.get("arguments") or {}).items()
    }
    definition = dict(policy.get("definition") or {})
    fields: Fields = {}
    if definition:
        own = {key: value for key, value in definition.items() if key not in arguments}
        about = f"queue {name}, policy {str(policy.get('name'))[:80]}"
        _read({**own, **_overflow_of(arguments)}, about, fields, imported)
    _read({**_overflow_of(definition), **arguments}, f"queue {name}", fields, imported)
    if queue.get("auto_delete"):
        imported.note(
            Verdict.NONE, 0, f"queue {name}, auto_delete",
            "the queue stays when its last consumer leaves",
        )  # fmt: skip
    if queue.get("durable") is False:
        why = "the queue and its persistent messages survive a restart"
        imported.note(Verdict.CHANGED, 0, f"queue {name}, durable = false", why)
    return fields


def _overflow_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The overflow decides what a length means, wherever the length was set."""
    return {"overflow": given["overflow"]} if "overflow" in given else {}


def _read(given: Mapping[str, Any], owner: str, fields: Fields, imported: Imported) -> None:
    rejects = str(given.get("overflow", "drop-head")).startswith("reject-publish")
    for key, value in given.items():
        about = f"{owner}, {key} = {str(value)[:80]}"
        if key in ("max-length", "max-length-bytes", "delivery-limit", "max-priority") and (
            type(value) is not int
        ):
            imported.note(Verdict.NONE, 0, about, "not a whole number")
        elif key == "max-length" and not rejects:
            finding = ImportFinding(Verdict.TAKEN, 0, about, f"ring_size: {value}")
            imported.set(fields, "ring_size", value, finding)
        elif key in ("max-length", "max-length-bytes"):
            name = "max_messages" if key == "max-length" else "max_bytes"
            why = f"{name}: {value}, which also counts messages that are being delivered"
            imported.set(fields, name, value, ImportFinding(Verdict.CHANGED, 0, about, why))
        else:
            _read_other(key, value, about, fields, imported)
    if rejects:
        fields["when_full"] = "reject_newest"


def _read_other(key: str, value: Any, about: str, fields: Fields, imported: Imported) -> None:
    if key == "overflow":
        if value == "drop-head":
            imported.note(Verdict.TAKEN, 0, about, "evict: oldest, the default")
        elif value in ("reject-publish", "reject-publish-dlx"):
            why = "when_full: reject_newest; the message goes to the dead topic"
            imported.note(Verdict.TAKEN, 0, about, why)
        else:
            imported.note(Verdict.NONE, 0, about, "not an overflow that is known here")
    elif key in ("dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy"):
        imported.note(Verdict.CHANGED, 0, about, _DEAD)
    elif key == "max-priority":
        verdict = Verdict.TAKEN if value in (9, 10) else Verdict.CHANGED
        why = "every queue has the priorities 0 to 9; a message without one has 4, not 0"
        imported.note(verdict, 0, about, why)
    elif key == "delivery-limit":
        most = value + 1 if value >= 0 else -1
        why = f"max_attempts: {most}, which counts the first delivery, too"
        imported.set(fields, "max_attempts", most, ImportFinding(Verdict.CHANGED, 0, about, why))
    elif key == "single-active-consumer" and value:
        fields |= {"max_active_consumers": 1, "max_backup_consumers": BACKUPS}
        why = f"max_active_consumers: 1, max_backup_consumers: {BACKUPS}"
        imported.note(Verdict.TAKEN, 0, about, why)
    elif key == "queue-type" and value == "stream":
        why = "a stream is read again and again: use a Kafka topic"
        imported.note(Verdict.NONE, 0, about, why)
    else:
        why = _NO_EQUIVALENT.get(key, "not a setting that is known here")
        imported.note(Verdict.NONE, 0, about, why)
