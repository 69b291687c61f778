"""Send a message to a queue, through a topic whose route leads there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web
from aiokafka.errors import KafkaError

from ringfaust.client import RingProducer
from ringfaust.client.errors import ClientError, Refused
from ringfaust.config import RouteConfig
from ringfaust.console.actions import field
from ringfaust.console.backend import Backend, reason_of
from ringfaust.console.context import SESSION, backend_of
from ringfaust.console.rendering import url
from ringfaust.errors import BadSetting, RingfaustError
from ringfaust.protocol.records import FetchedRecord
from ringfaust.protocol.redrive import queue_header_for

ROUTES = web.RouteTableDef()
_DIGITS = 18
"""Of the largest number that a field of the form may have."""


@ROUTES.post("/queue/send")
async def send(request: web.Request) -> web.StreamResponse:
    """Send what the form says."""
    form = {name: str(value) for name, value in (await request.post()).items()}
    queue = field(form, "queue")
    try:
        id_, topic = await _send(backend_of(request), queue, form)
        notice = ("done", f"Message {id_} was sent to {queue} through topic {topic}.")
    except (RingfaustError, KafkaError) as error:
        notice = ("failed", reason_of(error))
    request[SESSION].notices.append(notice)
    raise web.HTTPSeeOther(url("/queue", name=queue))


async def _send(backend: Backend, queue: str, form: Mapping[str, str]) -> tuple[str, str]:
    """Send; return the id and the topic.

    Raises:
        BadSetting: a field is not valid.
        ClientError: no route leads to the queue, or the message is not valid.
        ConfigError: what was applied is not valid for this version.
        UnsupportedLevel: this version does not support the feature level in use (R129).
        KafkaError: the brokers failed.
    """
    options: dict[str, Any] = {"headers": _headers(form.get("headers", ""))}
    options |= {name: text for name in ("id", "key") if (text := form.get(name, "").strip())}
    for name in ("priority", "delay_ms"):
        if text := form.get(name, "").strip():
            options[name] = _whole(name, text)
    value = form.get("value", "").replace("\r\n", "\n")
    queues = (await backend.in_use()).queues
    topic, header = _route(queues.routes, queue, value, options)
    if header:
        options["queue"] = header
    direct, _ = queues.split_routes(backend.worker.partitions)
    if any(each.topic == topic for each in direct):
        options["partition"] = await _partition(backend, queue)
    async with RingProducer(**backend.options) as producer:
        return await producer.send(topic, value, **options), topic


def _route(
    routes: Sequence[RouteConfig], queue: str, value: str, options: Mapping[str, Any]
) -> tuple[str, str]:
    """The topic whose route leads to the queue, and the header that it needs for that."""
    key = options.get("key")
    headers = [(name, text.encode()) for name, text in options["headers"].items()]
    for route in routes:
        record = FetchedRecord(
            route.topic, key=key.encode() if key else None, value=value.encode(), headers=headers
        )
        header = queue_header_for(route.topic, route.queue, record, queue)
        if header is not None:
            return route.topic, header
    listed = ", ".join(f"{each.topic} to {each.queue}" for each in routes)
    raise ClientError(
        f"no route leads a message with this key and these headers to {queue}; "
        f"the routes are: {listed}"
    )


async def _partition(backend: Backend, queue: str) -> int | None:
    """Where the queue lives; None: it does not exist yet, so the key decides."""
    try:
        return (await (await backend.admin()).queue(queue)).partition
    except Refused:
        return None


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise BadSetting(name, text, "a whole number is needed")
    return int(text)


def _headers(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise BadSetting("headers", line, "write one NAME=VALUE in each line")
        found[name.strip()] = value.strip()
    return found
