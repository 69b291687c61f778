"""A compressed batch is expanded up to a limit; what is larger or damaged is refused (R116)."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import codec
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfaust.worker.faust import decompression
from ringfaust.worker.faust.decompression import BATCH_BYTES, Buffer, CannotExpand

Code = Callable[[bytes], bytes]
Expand = Callable[[Buffer], bytes]

CODECS: dict[str, tuple[Code, Expand]] = {
    "gzip": (codec.gzip_encode, decompression.expand_gzip),
    "snappy": (codec.snappy_encode, decompression.expand_snappy),
    "raw snappy": (
        lambda raw: codec.snappy_encode(raw, xerial_compatible=False),
        decompression.expand_snappy,
    ),
    "lz4": (codec.lz4_encode, decompression.expand_lz4),
    "zstd": (codec.zstd_encode, decompression.expand_zstd),
}
EACH = pytest.mark.parametrize(("compress", "expand"), CODECS.values(), ids=CODECS)


@EACH
@given(raw=st.binary(min_size=1, max_size=300))
@settings(max_examples=25, deadline=None)
def test_what_was_compressed_is_expanded(compress: Code, expand: Expand, raw: bytes) -> None:
    assert expand(compress(raw * 300)) == expand(memoryview(compress(raw * 300))) == raw * 300


@EACH
def test_a_batch_may_expand_to_the_limit_and_no_further(compress: Code, expand: Expand) -> None:
    assert len(expand(compress(bytes(BATCH_BYTES)))) == BATCH_BYTES
    with pytest.raises(CannotExpand, match="33,554,432 bytes"):
        expand(compress(bytes(BATCH_BYTES + 1)))


@EACH
def test_damaged_data_is_refused(compress: Code, expand: Expand) -> None:
    raw = bytes(compress(bytes(range(256)) * 40))
    for damaged in (raw[:-9], raw[: len(raw) // 2]):
        with pytest.raises(CannotExpand):
            expand(damaged)


_BOMB = """
import resource, zlib
from ringfaust.worker.faust.decompression import CannotExpand, expand_gzip

packer = zlib.compressobj(9, wbits=31)
bomb = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(400)), packer.flush()])
assert len(bomb) < 420_000
resource.setrlimit(resource.RLIMIT_DATA, (150 << 20, 150 << 20))
try:
    expand_gzip(bomb)
except CannotExpand:
    print("refused")
"""


def test_400_kb_that_expand_to_400_mb_are_refused_within_little_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BOMB], check=False, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("refused", "")


def test_gzip_in_several_members() -> None:
    member = gzip.compress(b"abc")
    assert decompression.expand_gzip(member * 3 + b"\0\0") == b"abc" * 3
    half = gzip.compress(bytes(BATCH_BYTES // 2 + 1))
    with pytest.raises(CannotExpand):
        decompression.expand_gzip(half * 2)


def test_many_small_gzip_members_are_not_copied_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch of 1 MB has 50,000 that are empty: a worker that copies the rest for each hangs."""
    fed: list[int] = []
    new = zlib.decompressobj

    class Counted:
        def __init__(self, wbits: int) -> None:
            self._member = new(wbits)

        def decompress(self, part: bytes, most: int) -> bytes:
            fed.append(len(part))
            return self._member.decompress(part, most)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._member, name)

    monkeypatch.setattr(zlib, "decompressobj", Counted)
    raw = gzip.compress(b"") * 5_000
    assert decompression.expand_gzip(raw) == b""
    assert sum(fed) < 300 * len(raw)
