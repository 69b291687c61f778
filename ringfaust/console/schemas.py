"""Bodies that a schema registry describes: Avro, Protobuf and JSON behind a schema's number.

Producers that use a registry begin each value with a zero byte and the number of its schema, four
bytes. It needs `ringfaust[console]`. Whatever cannot be decoded is shown as it is.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

import aiohttp

from ringfaust.client.inspected import Excerpt, MessageDetails
from ringfaust.console.avro import read_avro, zigzag
from ringfaust.console.redriving import GoneMessage
from ringfaust.errors import MissingExtra

log = logging.getLogger(__name__)

_PREFIX_BYTES = 5
_WAIT_S = 3.0
_AGAIN_S = 30.0
"""How long a schema that could not be read is not asked for again."""
_MOST = 1_000
"""Schemas that are remembered."""

Message = TypeVar("Message", MessageDetails, GoneMessage)
Decode = Callable[[bytes], Any]
"""From the bytes after the schema's number to what JSON can show."""


class Schemas:
    """A schema registry with the API of Confluent's, and what it has said."""

    def __init__(self, url: str) -> None:
        """Connect to nothing yet.

        Raises:
            MissingExtra: fastavro or protobuf is not installed.
        """
        if url and not (find_spec("fastavro") and find_spec("google.protobuf")):
            raise MissingExtra("web.schema_registry", ["fastavro", "google.protobuf"], "console")
        self._url = url.rstrip("/")
        self._known: dict[int, Decode] = {}
        self._failed: dict[int, float] = {}

    async def decode_values(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages, each with its value as `decoded` returns it."""
        values = await self.decoded(*(each.value for each in messages))
        return [replace(each, value=value) for each, value in zip(messages, values, strict=True)]

    async def decoded(self, *values: Excerpt | None) -> list[Excerpt | None]:
        """Return the values, decoded in a thread to JSON where a schema describes them."""
        wanted = {number for each in values if (number := self._number(each)) is not None}
        if not wanted:
            return [*values]
        await self._learn(wanted)
        return await asyncio.to_thread(lambda: [self._decoded(each) for each in values])

    def _number(self, value: Excerpt | None) -> int | None:
        """The number of a value's schema, if it begins with one."""
        if not self._url or value is None or not value.is_whole:
            return None
        start = value.start
        is_described = len(start) >= _PREFIX_BYTES and start[0] == 0
        return int.from_bytes(start[1:_PREFIX_BYTES], "big") if is_described else None

    def _decoded(self, value: Excerpt | None) -> Excerpt | None:
        number = self._number(value)
        decode = None if number is None else self._known.get(number)
        if value is None or decode is None:
            return value
        try:
            shown = json.dumps(decode(value.start[_PREFIX_BYTES:]), default=_text).encode()
        except Exception as error:  # noqa: BLE001 - the libraries raise anything on foreign bytes
            log.debug("console: schema %s does not fit a value: %s", number, error)
            return value
        return Excerpt(start=shown, size_bytes=len(shown))

    async def _learn(self, numbers: set[int]) -> None:
        now = time.monotonic()
        new = [
            number for number in numbers - self._known.keys()
            if now - self._failed.get(number, -_AGAIN_S) >= _AGAIN_S
        ]  # fmt: skip
        if not new:
            return
        if len(self._known) + len(self._failed) > _MOST:
            self._known.clear()
            self._failed.clear()
        timeout = aiohttp.ClientTimeout(total=_WAIT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            registry = _Registry(session, self._url)
            found = await asyncio.gather(
                *(registry.decoder(number) for number in new), return_exceptions=True
            )
        for number, decode in zip(new, found, strict=True):
            if isinstance(decode, BaseException):
                self._failed[number] = now
                # Not its repr, which has the headers; and its text may have the address.
                text = str(decode).replace(self._url, "the registry")
                kind = type(decode).__name__
                log.warning("console: cannot read schema %s: %s: %s", number, kind, text)
            else:
                self._known[number] = decode


class _Registry:
    """Reads schemas with the schemas that they refer to."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def decoder(self, number: int) -> Decode:
        path = f"/schemas/ids/{number}"
        found = await self._get(path)
        kind = found.get("schemaType", "AVRO")
        if kind == "JSON":
            return json.loads
        if kind == "PROTOBUF":
            return await self._protobuf(path)
        return await self._avro(found)

    async def _avro(self, found: Mapping[str, Any]) -> Decode:
        from fastavro import parse_schema  # noqa: PLC0415 - an extra

        named: dict[str, Any] = {}
        for each in await self._with_references(found, ""):
            schema = parse_schema(json.loads(each["schema"]), named)
        return lambda body: read_avro(schema, named, body)

    async def _protobuf(self, path: str) -> Decode:
        from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: PLC0415 - an extra

        form = "?format=serialized"
        pool = descriptor_pool.DescriptorPool()
        for each in await self._with_references(await self._get(path + form), form):
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(each["schema"]))
            file.name = each.get("name", "message.proto")
            _add_well_known(pool, file.dependency)
            pool.Add(file)
        described = pool.FindFileByName(file.name)
        return lambda body: _read_protobuf(described, body)

    async def _with_references(self, found: Mapping[str, Any], form: str) -> list[dict[str, Any]]:
        """The schemas that it refers to, each before those that refer to it, and itself."""
        schemas: dict[str, dict[str, Any]] = {}
        for each in found.get("references", ()):
            path = f"/subjects/{each['subject']}/versions/{each['version']}{form}"
            for schema in await self._with_references(await self._get(path), form):
                schemas.setdefault(
                    schema.get("name", each["name"]), {"name": each["name"]} | schema
                )
        return [*schemas.values(), {"schema": found["schema"]}]

    async def _get(self, path: str) -> dict[str, Any]:
        async with self._session.get(self._url + path) as answer:
            answer.raise_for_status()
            found: dict[str, Any] = await answer.json(content_type=None)
            return found


def _add_well_known(pool: Any, imported: Iterable[str]) -> None:
    """Add the files of Google among those imported; registries do not keep them."""
    from google.protobuf import descriptor_pb2  # noqa: PLC0415 - an extra

    for name in imported:
        if name.startswith("google/protobuf/"):
            module = import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
            file = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            _add_well_known(pool, file.dependency)
            pool.Add(file)


def _read_protobuf(file: Any, body: bytes) -> Any:
    from google.protobuf import json_format, message_factory  # noqa: PLC0415 - an extra

    count, at = zigzag(body, 0)
    path = []
    for _ in range(count):
        index, at = zigzag(body, at)
        path.append(index)
    kind, *nested = path or [0]
    described = list(file.message_types_by_name.values())[kind]
    for each in nested:
        described = described.nested_types[each]
    message = message_factory.GetMessageClass(described)()
    message.ParseFromString(body[at:])
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _text(value: object) -> str:
    """What JSON has no word for: bytes, times and decimal numbers."""
    return f"base64:{base64.b64encode(value).decode()}" if isinstance(value, bytes) else str(value)
