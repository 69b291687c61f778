"""Arguments and policies of RabbitMQ's queues."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ringfaust.importers.imported import BACKUPS, Fields, Imported, Verdict
from ringfaust.importers.rabbitmq_policies import Given, Settings, merged

_LIMITED_SINCE, _QUORUM_ATTEMPTS = 4, 21
"""RabbitMQ 4 redelivers a message of a quorum queue 20 times; earlier versions have no limit."""
_DEAD = "evicted messages go to the topic ringfaust.evicted, dead ones to ringfaust.dead"
_STREAM = "a stream is read again and again, and keeps for a time: use a Kafka topic"
_LACKS = {"classic": "delivery-limit", "quorum": "max-priority"}
"""What the types of queues that are imported do not have."""
_FEDERATION = "it brought messages of another broker: a program has to do that"
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
    "federation-upstream": _FEDERATION,
    "federation-upstream-set": _FEDERATION,
    "quorum-initial-group-size": "`replication_factor` in worker.yaml",
}


def note_types(queues: Collection[Mapping[str, Any]], version: int, imported: Imported) -> None:
    """Give a line to what all queues of a type do otherwise here, whatever their settings.

    `version`: of RabbitMQ.
    """
    kinds = {queue_type(each) for each in queues}
    prefers = "quorum" in kinds and version >= _LIMITED_SINCE
    if ("quorum" in kinds and not prefers) or any(
        queue_type(each) == "classic" and not _has_priorities(each) for each in queues
    ):
        why = (
            "RabbitMQ ignores the priority of messages: the producer leaves ringfaust-priority out"
        )
        imported.note(Verdict.CHANGED, 0, "queues without max-priority", why)
    if prefers:
        why = (
            "since version 4 RabbitMQ takes more of the messages whose priority is above 4, since "
            "4.3 all of them first; here a higher priority is always first"
        )
        imported.note(Verdict.CHANGED, 0, "quorum queues, priority of messages", why)
    if "quorum" in kinds:
        why = (
            "a returned message takes its old place, and leaves if the ring is full; in RabbitMQ "
            "it is the first, or without a delivery limit the last, and a consumer may take it "
            "before the limit is tested"
        )
        imported.note(Verdict.CHANGED, 0, "quorum queues, returned messages", why)


def _has_priorities(queue: Mapping[str, Any]) -> bool:
    return "x-max-priority" in (queue.get("arguments") or {}) and queue_type(queue) == "classic"


def set_attempts(
    queue: Mapping[str, Any], fields: Fields, version: int, noted: set[str], imported: Imported
) -> None:
    """What RabbitMQ does without a delivery limit: try for ever, or 21 times in a quorum queue.

    `version`: of RabbitMQ. `noted`: the types of queue that have their line.
    """
    kind = queue_type(queue)
    if "max_attempts" in fields:
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


def set_types(queues: Iterable[dict[str, Any]], vhosts: Iterable[Mapping[str, Any]]) -> None:
    """Give queues without a type that of their virtual host (augment_declare_args).

    RabbitMQ does so only for a queue that can have it: durable, and not deleted by itself.
    """
    defaults: dict[str, str] = {}
    for each in vhosts:
        metadata = each.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        given = str(each.get("default_queue_type") or metadata.get("default_queue_type") or "")
        kind = given.removeprefix("rabbit_").removesuffix("_queue")
        if kind in ("classic", "quorum", "stream"):
            defaults[str(each.get("name"))] = kind
    for queue in queues:
        is_typed = queue.get("type") or "x-queue-type" in (queue.get("arguments") or {})
        is_able = queue.get("durable", True) and not queue.get("auto_delete")
        if is_able and not is_typed:
            queue["type"] = defaults.get(str(queue.get("vhost", "/")), "classic")


def queue_type(queue: Mapping[str, Any]) -> str:
    """Return `classic`, `quorum`, `stream`, or a type that is not known here."""
    given = (queue.get("arguments") or {}).get("x-queue-type") or queue.get("type")
    kind = str(given or "classic").removeprefix("rabbit_").removesuffix("_queue")
    return "classic" if kind == "undefined" else kind  # rabbit_queue_type, discover


def why_not_imported(queue: Mapping[str, Any]) -> str:
    """Return why there is no such queue here; empty: there is."""
    kind = queue_type(queue)
    if kind == "stream":
        return _STREAM
    return "" if kind in _LACKS else f"a queue of type {kind[:80]} is not known here"


def applied_settings(
    queue: Mapping[str, Any], name: str, policy: Settings, imported: Imported
) -> Settings:
    """Return what applies of a queue's arguments and policies, for its type."""
    kind = queue_type(queue)
    arguments = {
        str(key).removeprefix("x-"): Given(f"queue {name}", value)
        for key, value in (queue.get("arguments") or {}).items()
    }
    # rabbit_quorum_queue, gather_policy_config: only the overflow of the policy comes first.
    given = merged(policy, arguments, imported, {"overflow"} if kind == "quorum" else ())
    overflow = given.get("overflow")
    if kind == "quorum" and overflow and overflow.value == "reject-publish-dlx":
        why = "evict: oldest, the default; a quorum queue does not have it and drops the oldest"
        imported.note(Verdict.CHANGED, 0, overflow.about("overflow"), why)
        del given["overflow"]
    lacks = _LACKS.get(kind)
    if lacks and (setting := given.pop(lacks, None)):
        imported.note(Verdict.TAKEN, 0, setting.about(lacks), f"a {kind} queue does not have it")
    return given


def queue_fields(
    queue: Mapping[str, Any], name: str, given: Settings, imported: Imported
) -> Fields:
    """Return a queue's fields. `name`: here. `given`: what applies to it."""
    fields = read_settings(given, imported, queue_type(queue))
    if _has_priorities(queue) and "ring_size" in fields:
        fields["evict"] = "head"
        why = (
            "evict: head, as RabbitMQ drops the first message, of the highest priority; of "
            "messages that return into a full ring the oldest leave"
        )
        imported.note(Verdict.CHANGED, 0, f"queue {name}, max-length with max-priority", why)
    if _has_priorities(queue) and "max_bytes" in fields and "when_full" not in fields:
        why = "the oldest messages leave; RabbitMQ drops the first, of the highest priority"
        imported.note(Verdict.CHANGED, 0, f"queue {name}, max-length-bytes with max-priority", why)
    if queue.get("auto_delete"):
        imported.note(
            Verdict.NONE, 0, f"queue {name}, auto_delete",
            "the queue stays when its last consumer leaves",
        )  # fmt: skip
    if queue.get("durable") is False:
        why = "the queue and its persistent messages survive a restart"
        imported.note(Verdict.CHANGED, 0, f"queue {name}, durable = false", why)
    return fields


def read_settings(given: Settings, imported: Imported, kind: str = "") -> Fields:
    """Return the fields that settings become; each gets its line.

    `kind`: type of queue; empty: not known.
    """
    fields: Fields = {}
    overflow = given.get("overflow")
    rejects = overflow is not None and str(overflow.value).startswith("reject-publish")
    for key, each in given.items():
        value, about = each.value, each.about(key)
        if key in ("max-length", "max-length-bytes", "delivery-limit", "max-priority") and (
            type(value) is not int
        ):
            imported.note(Verdict.NONE, 0, about, "not a whole number")
        elif key == "max-length" and not rejects:
            imported.set(fields, "ring_size", value, 0, about)
        elif key in ("max-length", "max-length-bytes"):
            name = "max_messages" if key == "max-length" else "max_bytes"
            more = ", which also counts messages that are being delivered"
            if key == "max-length-bytes":
                more += (
                    ", and the bytes of key and headers, and is not tested when a message returns"
                )
            if rejects and kind == "quorum":
                more += "; a quorum queue takes one more, and then none until a fifth is gone"
            imported.set(fields, name, value, 0, about, verdict=Verdict.CHANGED, more=more)
        else:
            _read_other(key, value, about, fields, imported)
    if rejects:
        fields["when_full"] = "reject_newest"
    return fields


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
        why = (
            "every queue has the priorities 0 to 9: the producer sets "
            f"{f'at most {value}' if value < 9 else 'one'}, and 0 where it sets none"
        )
        imported.note(Verdict.CHANGED, 0, about, why)
    elif key == "delivery-limit":
        most = value + 1 if value >= 0 else -1
        more = ", which counts the first delivery, too, but no delivery whose consumer leaves"
        imported.set(fields, "max_attempts", most, 0, about, verdict=Verdict.CHANGED, more=more)
    elif key == "single-active-consumer" and not value:
        imported.note(Verdict.TAKEN, 0, about, "nothing to do")
    elif key == "single-active-consumer":
        fields |= {"max_active_consumers": 1, "max_backup_consumers": BACKUPS}
        why = f"max_active_consumers: 1, max_backup_consumers: {BACKUPS}"
        imported.note(Verdict.TAKEN, 0, about, why)
    else:
        why = _NO_EQUIVALENT.get(key, "not a setting that is known here")
        imported.note(Verdict.NONE, 0, about, why)
