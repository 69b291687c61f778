"""Hostile records change nothing and stop nothing; the error names field and value (R103)."""

from __future__ import annotations

import pytest

from ringfaust.protocol import headers as h
from tests.fuzz.harness import HOP, KEYED, Partition, Said
from tests.fuzz.hostile import HEADERS, NO_COMMANDS, REFUSED

TEXT_CHARS = 1_000
"""An error quotes only a short part of a record."""


@pytest.fixture(scope="module")
def partition() -> Partition:
    """One for all: none of the records may leave a trace for the next."""
    return Partition()


def assert_refused(said: Said, words: tuple[str | bytes, ...]) -> None:
    assert not said.has_changed, "it changed the state"
    assert said.others == 0, "it brought messages about"
    (text,) = said.texts()
    assert len(text) <= TEXT_CHARS
    for word in words:
        assert (word.decode() if isinstance(word, bytes) else word) in text


def assert_undecodable(said: Said, value: bytes | None) -> None:
    ((_, kept, headers),) = said.dead
    result = dict(headers)
    reason = result[h.REASON].decode()
    assert said.reasons() == [reason]
    assert kept == (value if reason == "undecodable" else None)
    assert result[h.TEXT].decode() == said.texts()[0]


@pytest.mark.parametrize("name", NO_COMMANDS)
def test_a_control_record_that_is_no_command(partition: Partition, name: str) -> None:
    value, words = NO_COMMANDS[name]
    said = partition.control(value)
    assert_refused(said, words)
    assert_undecodable(said, value)
    is_json = "Invalid JSON" not in said.texts()[0]
    if is_json and value and b"me/1" in value:
        ((reply),) = said.replies
        assert (reply["ok"], reply["reason"]) == (False, "bad_command")
        assert reply["text"] == said.texts()[0]
    else:
        assert said.replies == [], "nobody has said where to"


@pytest.mark.parametrize("name", REFUSED)
def test_a_command_that_is_refused(partition: Partition, name: str) -> None:
    value, reason, words = REFUSED[name]
    said = partition.control(value)
    assert_refused(said, words)
    assert said.reasons() == [reason]
    ((reply),) = said.replies
    assert (reply["ok"], reply["reason"], reply["text"]) == (False, reason, said.texts()[0])
    assert said.dead == []


@pytest.mark.parametrize("name", HEADERS)
def test_a_record_whose_headers_make_no_sense(partition: Partition, name: str) -> None:
    headers, words = HEADERS[name]
    said = partition.produce(headers, value=b"body")
    assert_refused(said, words)
    assert_undecodable(said, b"body")


@pytest.mark.parametrize(
    ("topic", "key", "headers"),
    [
        (KEYED, None, []),
        (KEYED, b"", []),
        (KEYED, b"\xff", []),
        (KEYED, b"k" * 250, []),
        (HOP, b"orders", []),
        (HOP, None, [(h.QUEUE, b"orders"), (h.TIME_MS, b"soon")]),
        (HOP, None, [(h.QUEUE, b"orders"), (h.SOURCE, b"s" * 513)]),
        (HOP, None, [(h.QUEUE, b"orders"), (h.QUEUE, b"\xff")]),
    ],
)
def test_a_record_without_the_part_that_its_route_needs(
    partition: Partition, topic: str, key: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    said = partition.produce(headers, topic=topic, key=key)
    assert_refused(said, ())
    assert_undecodable(said, b"body")


def test_of_a_field_that_stands_twice_the_last_counts(partition: Partition) -> None:
    said = partition.control(b'{"type":"purge","queue":"strict","type":"list","queue":"orders"}')
    assert not said.has_changed
    assert said.replies[0]["answer"]["ready"] == ["E", "F"]


@pytest.mark.parametrize("value", [None, b"", b"\x00", b"\xff" * 1_000])
def test_what_a_record_holds_is_nobodys_affair(value: bytes | None) -> None:
    said = Partition().produce([("to", b"strict"), ("h", b"\xff"), ("h", b"")], value=value)
    assert said.reasons() == ["queue_full", "limit"]
    ((_, kept, headers),) = said.dead
    assert (kept, headers[1:3]) == (value, [("h", b"\xff"), ("h", b"")])


def test_a_refused_send_is_reported_under_its_id(partition: Partition) -> None:
    for headers, reason in (
        ([("to", b"nowhere")], "unknown_queue"),
        ([("to", b"orders"), ("ringfaust-xid", b"nobody")], "bad_command"),
        (
            [
                ("to", b"orders"),
                ("ringfaust-redrives", b"6"),
                ("ringfaust-redrive-of", b"orders/1"),
            ],
            "bad_command",
        ),
    ):
        said = partition.produce([*headers, ("ringfaust-id", b"lost")])
        assert_refused(said, ())
        assert said.reasons() == [reason]
        ((reply),) = said.replies
        assert (reply["ok"], reply["reason"]) == (False, reason)


def test_nothing_of_it_stays_in_memory_either() -> None:
    """The same commands do the same after all these records as without them (R102)."""
    plain, tried = Partition(), Partition()
    for value, _ in NO_COMMANDS.values():
        tried.control(value)
    for value, _, _ in REFUSED.values():
        tried.control(value)
    for headers, _ in HEADERS.values():
        tried.produce(headers)
    for command in (
        {"type": "ack", "queue": "orders", "consumer": "holder", "message": "D"},
        {"type": "commit", "xid": "prepared"},
        {"type": "rollback_xid", "xid": "open"},
        {"type": "configure", "queue": "orders", "settings": {"ring_size": 1, "shrink": "eager"}},
        {"type": "list", "queue": "orders", "reply": "r"},
    ):
        ones, others = plain.say(dict(command)), tried.say(dict(command))
        for said in (ones, others):
            for line in said.events:
                del line["by"]
        assert ones == others
