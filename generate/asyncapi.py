"""The AsyncAPI 3 document of an application's topics, from their declarations in `topics/`."""

from __future__ import annotations

from typing import Any

from ringfaust import __version__
from ringfaust.config.topics import TopicDeclaration, declarations
from ringfaust.protocol import headers as h
from ringfaust.protocol.cloud_events import ATTRIBUTES
from ringfaust.protocol.records import Role

_OURS = "ringfaust"
_SCHEMAS = {
    Role.CONTROL: "control.schema.json",
    Role.REPLIES: "replies.schema.json",
    Role.EVENTS: "events.schema.json",
}
_PRODUCERS = (
    h.ID, h.PRIORITY, h.GROUP, h.DELAY_MS, h.DELIVER_AT_MS, h.TTL_MS, h.EXPIRES_AT_MS, h.QUEUE,
    h.PROPERTIES, h.DELIVERY_MODE, h.XID, h.REDRIVES, h.REDRIVE_OF,
)  # fmt: skip
_MESSAGE = (h.ID, h.QUEUE, h.SEQUENCE, h.SOURCE, h.ENQUEUED_MS, h.PRIORITY)
_HEADERS = {
    Role.PRODUCER: _PRODUCERS,
    Role.DISPATCHED: (
        *_MESSAGE, h.CONSUMER, h.DELIVERY, h.ATTEMPT, h.HANDOVERS, h.REDELIVERED,
    ),
    Role.EVICTED: (
        *_MESSAGE, h.REASON, h.CAUSE, h.RING_SIZE, h.READY, h.TIME_MS, h.AGE_MS, h.HANDOVERS,
        *ATTRIBUTES,
    ),
    Role.DEAD: (
        h.SOURCE, h.REASON, h.TEXT, h.TIME_MS, h.ATTEMPT, h.HANDOVERS, h.CONSUMER, h.POSITION,
        *ATTRIBUTES,
    ),
}  # fmt: skip
_INTERNAL = (Role.CHANGELOG, Role.HOP)


def asyncapi() -> dict[str, Any]:
    """Return the document for an application called `ringfaust`."""
    shown = [each for each in declarations().values() if each.role not in _INTERNAL]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "ringfaust",
            "version": __version__,
            "description": "Ring queues on Apache Kafka. docs/protocol.md explains every field.",
        },
        "defaultContentType": "application/json",
        "servers": {"kafka": {"host": "127.0.0.1:9092", "protocol": "kafka"}},
        "channels": {str(each.role): _channel(each) for each in shown},
        "operations": {_operation_name(each): _operation(each) for each in shown},
    }


def _channel(topic: TopicDeclaration) -> dict[str, Any]:
    address = topic.name.format(application=_OURS, topic="{topic}")
    channel: dict[str, Any] = {
        "address": address,
        "description": " ".join(topic.why.split()),
        "messages": {"record": _message(topic)},
        "bindings": {"kafka": {"bindingVersion": "0.5.0"}},
    }
    if topic.role is Role.PRODUCER:
        channel["parameters"] = {"topic": {"description": "A topic that a route reads."}}
    else:
        channel["bindings"]["kafka"]["topic"] = address
    return channel


def _message(topic: TopicDeclaration) -> dict[str, Any]:
    message: dict[str, Any] = {
        "summary": topic.value,
        "bindings": {"kafka": {"bindingVersion": "0.5.0"}},
    }
    if names := _HEADERS.get(topic.role):
        properties = {name: {"type": "string"} for name in names}
        message["headers"] = {"type": "object", "properties": properties}
    if schema := _SCHEMAS.get(topic.role):
        message["payload"] = {"$ref": schema}
    elif topic.role in (Role.STATUS, Role.CONFIGURATION):  # rows gain fields over time
        message["payload"] = {"type": ["object", "null"]}
    else:
        message["contentType"] = "application/octet-stream"
    if topic.role is Role.EVENTS:
        message["contentType"] = "application/x-ndjson"
        message["description"] = "The schema is that of a line; a record has up to 400."
    return message


def _operation_name(topic: TopicDeclaration) -> str:
    verb = "send" if topic.role in (Role.PRODUCER, Role.CONTROL) else "receive"
    return f"{verb}_{topic.role}"


def _operation(topic: TopicDeclaration) -> dict[str, Any]:
    """Return what a client does with the topic."""
    channel = {"$ref": f"#/channels/{topic.role}"}
    return {
        "action": _operation_name(topic).partition("_")[0],
        "channel": channel,
        "messages": [{"$ref": f"#/channels/{topic.role}/messages/record"}],
        "summary": f"Written by {topic.written_by}; read by {topic.read_by}.",
    }
