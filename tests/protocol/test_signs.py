"""The bytes of signs of life (R126)."""

from __future__ import annotations

import pytest

from ringfaust.protocol.status import Sign, read_key, read_sign, sign_key, write_sign

KEY = b"alive/w"


def test_a_sign_has_a_time_and_says_its_interval() -> None:
    value = write_sign(Sign("w", 750), 1_000)
    assert value == b'{"time_ms":1000,"interval_ms":750}'
    assert sign_key("w") == KEY
    assert read_sign(KEY, value) == Sign("w", 750)


def test_who_stops_leaves_a_tombstone() -> None:
    assert write_sign(Sign("w", is_alive=False), 1_000) is None
    assert read_sign(KEY, None) == Sign("w", is_alive=False)


def test_earlier_signs_do_not_say_their_interval() -> None:
    assert read_sign(KEY, b'{"time_ms": 1000}') == Sign("w")


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"7", b"\xff", b'{"interval_ms":-5}', b'{"interval_ms":1e999}']
)
def test_whatever_a_sign_says_its_worker_lives(value: bytes) -> None:
    assert read_sign(KEY, value) == Sign("w")


@pytest.mark.parametrize("key", [None, b"", b"alive/", b"worker/w", b"queue/alive/w"])
def test_other_rows_are_no_signs(key: bytes | None) -> None:
    assert read_sign(key, b'{"time_ms":1000}') is None


def test_readers_of_rows_skip_signs() -> None:
    assert read_key(KEY) is None
