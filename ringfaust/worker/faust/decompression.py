"""Expands compressed batches of records, up to a limit (R116).

The Kafka client expands a whole batch at once, whatever its size: 400 kB of gzip can be 400 MB.
These functions refuse a batch that expands to more than the limit, before it takes more memory.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
from faust.types import TP

from ringfaust.protocol.headers import UNDECODABLE_CONTENT
from ringfaust.protocol.records import FetchedRecord
from ringfaust.times import wall_ms

BATCH_BYTES = 32 * 1024 * 1024
"""Most bytes of a batch of records after decompression."""

_GZIP = 31
"""`wbits` of zlib for data with the header of gzip."""
_GZIP_PART = 4096
"""Bytes that are expanded at a time: zlib copies what follows a member, and members may be tiny."""
_XERIAL = b"\x82SNAPPY\0"
"""Begins Snappy data in blocks, as Java writes it."""
_XERIAL_HEAD, _XERIAL_SIZE = 16, 4

Buffer = bytes | bytearray | memoryview


class CannotExpand(Exception):
    """A batch of records expands to more than `BATCH_BYTES`, or its compressed data is damaged."""


def _check(size: int) -> None:
    if size > BATCH_BYTES:
        raise CannotExpand(f"it expands to more than {BATCH_BYTES:,} bytes")


def expand_gzip(payload: Buffer) -> bytes:
    """Expand gzip data: one member or several.

    Raises:
        CannotExpand: it is too large or damaged.
    """
    parts: list[bytes] = []
    size, at, raw = 0, 0, bytes(payload)
    while at < len(raw):
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            if not (part := raw[at : at + _GZIP_PART]):
                raise CannotExpand("it is damaged: the end is missing")
            try:
                parts.append(member.decompress(part, BATCH_BYTES - size + 1))
            except zlib.error as error:
                raise CannotExpand(f"it is damaged: {error}") from None
            size += len(parts[-1])
            _check(size)
            at += len(part)
        at -= len(member.unused_data)
        while raw.startswith(b"\0", at):
            at += 1
    return b"".join(parts)


def expand_snappy(payload: Buffer) -> bytes:
    """Expand Snappy data: raw, or in the blocks that Java writes.

    Raises:
        CannotExpand: it is too large or damaged.
    """
    parts: list[bytes] = []
    size = 0
    try:
        for block in _snappy_blocks(bytes(payload)):
            size += cramjam.snappy.decompress_raw_len(block)
            _check(size)
            parts.append(bytes(cramjam.snappy.decompress_raw(block)))
    except cramjam.DecompressionError as error:
        raise CannotExpand(f"it is damaged: {error}") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_blocks(raw: bytes) -> Iterator[bytes]:
    if not raw.startswith(_XERIAL):
        yield raw
        return
    at = _XERIAL_HEAD
    while at < len(raw):
        size = int.from_bytes(raw[at : at + _XERIAL_SIZE], "big")
        at += _XERIAL_SIZE
        yield raw[at : at + size]
        at += size


def _expander(decompress_into: Callable[[Any, Any], int]) -> Callable[[Buffer], bytes]:
    def expand(payload: Buffer) -> bytes:
        """Expand the data.

        Raises:
            CannotExpand: it is too large or damaged.
        """
        # The pages of a mapping that are not used take neither memory nor time.
        with mmap.mmap(-1, BATCH_BYTES) as out:
            try:
                size = decompress_into(payload, out)
            except cramjam.DecompressionError as error:
                text = f"it expands to more than {BATCH_BYTES:,} bytes, or is damaged ({error})"
                raise CannotExpand(text) from None
            return out[:size]

    return expand


expand_lz4 = _expander(cramjam.lz4.decompress_into)
expand_zstd = _expander(cramjam.zstd.decompress_into)


def placeholder(tp: TP, offset: int, error: Exception) -> FetchedRecord:
    """An empty record in place of one that the client cannot decode."""
    if isinstance(error, CannotExpand):
        text = f"its compressed batch of records cannot be read: {error}; send smaller batches"
    else:
        text = f"the Kafka client cannot decode it ({error}); is the name of a header not UTF-8?"
    headers = ((UNDECODABLE_CONTENT, text.encode()),)
    return FetchedRecord(*tp, offset, wall_ms(), headers=headers)
