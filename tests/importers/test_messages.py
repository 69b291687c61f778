"""Stored messages of Artemis: what an export says, and the records that it becomes."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import zlib
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.importers import send_stored
from ringfaust.importers.artemis_export import ArtemisExport, StoredMessage
from ringfaust.importers.imported import CannotImport
from ringfaust.importers.send_stored import _records
from ringfaust.importers.stored_records import Places

EXPORT = Path(__file__).with_name("fixtures") / "exports" / "export.xml"
QUEUES = QueuesConfig.model_validate({
    "routes": [
        {"topic": "direct", "queue": "{key}"},
        {"topic": "orders", "queue": "orders"},
        {"topic": "messages", "queue": "{header:ringfaust-queue}"},
    ],
    "queues": {"orders": {}},
    "addresses": {"prices": {"subscriptions": {"audit": {}}}},
})  # fmt: skip


def stored() -> list[StoredMessage]:
    return list(ArtemisExport(EXPORT, 1_000))


def test_an_export_is_read_in_order() -> None:
    one, two, three = stored()
    assert [each.id for each in (one, two, three)] == ["ID:one", "102", "ID:three"]
    assert one.properties["number"] == 1 and one.properties["half"] == 0.5
    assert one.properties["even"] is False and one.properties["raw"] == b"\xff\xef"
    assert one.properties["nothing"] is None
    assert (one.body, two.body, three.body) == (b"hello", "è€!".encode(), b"ab")
    assert (two.priority, two.expires_at_ms, two.type) == (9, 1_900_000_000_000, "text")
    assert one.queues == ["orders", "audit"]


def test_a_message_becomes_a_record_for_each_queue() -> None:
    records = [each for each in _records(EXPORT, WorkerConfig(), QUEUES) if each is not None]
    assert [each.topic for each in records] == ["orders", "messages", "orders", "orders"]
    first, copy, due, _ = ({name: value for name, value in each.headers} for each in records)
    assert first["ringfaust-id"] == b"ID:one" and first["ringfaust-group"] == b"g1"
    properties = json.loads(first["ringfaust-properties"])
    assert properties == {"number": 1, "colour": "red & <blue>", "even": False, "half": 0.5}
    assert (first["raw"], first["odd"]) == (b"\xff\xef", b"nan")
    assert "ringfaust-queue" not in first and copy["ringfaust-queue"] == b"prices::audit"
    assert due["ringfaust-deliver-at-ms"] == b"1899999999999"
    assert due["ringfaust-expires-at-ms"] == b"1900000000000"
    assert due["ringfaust-priority"] == b"9"
    assert not any(name.startswith("_AMQ") for name in first)


def test_a_body_beyond_the_limit_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "export.xml"
    path.write_text(EXPORT.read_text().replace("aGVsbG8=", "aGVs" * 40_000))
    one, two, _ = ArtemisExport(path, 1_000)
    assert one.is_oversized and one.body is None and two.body == "è€!".encode()
    records = list(_records(path, WorkerConfig(max_record_bytes=1_000), QUEUES))
    assert [each is None for each in records] == [True, True, False, False]


def test_a_queue_that_is_not_declared_is_named() -> None:
    queues = QueuesConfig.model_validate({"queues": {"other": {}}})
    with pytest.raises(CannotImport, match=r"export.xml, line 9: queue 'orders' is not declared"):
        list(_records(EXPORT, WorkerConfig(), queues))
    queues = QueuesConfig.model_validate({"queues": {"orders": {}}})
    with pytest.raises(CannotImport, match=r"no route leads to queue 'orders'"):
        list(_records(EXPORT, WorkerConfig(), queues))


def changed(tmp_path: Path, *pairs: tuple[str, str]) -> Path:
    """The export with some of its text replaced."""
    text = EXPORT.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "export.xml"
    path.write_text(text)
    return path


def test_a_pattern_of_queues_takes_no_message_of_an_address(tmp_path: Path) -> None:
    """`#` of an import declares every name: messages of prices::audit went to a queue audit."""
    queues = QUEUES.model_copy(update={"queues": {"#": {}}})
    _, copy, *_ = filter(None, _records(EXPORT, WorkerConfig(), queues))
    assert dict(copy.headers)["ringfaust-queue"] == b"prices::audit"
    path = changed(tmp_path, ('name="audit"', 'name="client.durable"'))
    with pytest.raises(CannotImport, match=r"queue 'prices::client.durable' is not declared"):
        list(_records(path, WorkerConfig(), queues))
    queues = QUEUES.model_copy(update={"queues": {"orders": {}, "audit": {}}, "addresses": {}})
    _, named, *_ = filter(None, _records(EXPORT, WorkerConfig(), queues))
    assert dict(named.headers)["ringfaust-queue"] == b"audit"


def test_a_message_id_is_that_which_jms_clients_know(tmp_path: Path) -> None:
    path = changed(tmp_path, ("ID:one", "5ab6-ef"))
    assert [each.id for each in ArtemisExport(path, 1_000)] == ["ID:5ab6-ef", "102", "ID:three"]


def test_compressed_bodies_are_expanded_within_bounds(tmp_path: Path) -> None:
    """Of a client with compressLargeMessages, whose consumers get the body as it was."""
    flag = '<property name="_AMQ_LARGE_COMPRESSED" value="true" type="boolean"/>'
    for body, is_kept in ((b"hello", True), (b"0" * 1_000_000, False)):
        packed = base64.urlsafe_b64encode(zlib.compress(body)).decode()
        path = changed(tmp_path, ("<properties>\n", f"<properties>{flag}\n"), ("aGVsbG8=", packed))
        message = next(iter(ArtemisExport(path, 1_000)))
        assert message.is_oversized is not is_kept
        assert message.body == (body if is_kept else None)
    path = changed(tmp_path, ("<properties>\n", f"<properties>{flag}\n"))
    with pytest.raises(CannotImport, match="the body of message ID:one cannot be read"):
        list(ArtemisExport(path, 1_000))


def test_a_text_is_measured_by_what_its_record_takes(tmp_path: Path) -> None:
    """Artemis stores 16 bits for each character."""
    text = "a" * 40_000
    raw = b"\1" + (2 * len(text)).to_bytes(4, "big") + text.encode("utf-16-le")
    path = changed(tmp_path, ("AQAAAAboAKwgIQA=", base64.urlsafe_b64encode(raw).decode()))
    records = list(_records(path, WorkerConfig(max_record_bytes=50_000), QUEUES))
    assert [each and len(each.value or b"") for each in records] == [5, 5, 40_000, 2]


def test_half_a_character_does_not_stop_an_import(tmp_path: Path) -> None:
    """A string of Java may have it, and no run of the import would get past that message."""
    raw = b"\1" + (8).to_bytes(4, "big") + "a\ud83db\u00b5".encode("utf-16-le", "surrogatepass")
    path = changed(tmp_path, ("AQAAAAboAKwgIQA=", base64.urlsafe_b64encode(raw).decode()))
    assert "a?b\u00b5".encode() in [each.body for each in ArtemisExport(path, 1_000)]


def test_an_import_that_goes_on_names_what_an_earlier_run_has_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = changed(tmp_path, ("aGVsbG8=", "aGVs" * 40_000))
    writer = AsyncMock()
    monkeypatch.setattr(send_stored, "TransactionalWriter", lambda *_, **__: writer)
    monkeypatch.setattr(send_stored, "_done", AsyncMock(return_value=3))
    worker = WorkerConfig(max_record_bytes=1_000)
    progress = asyncio.run(send_stored.import_messages(path, worker, QUEUES))
    assert progress == send_stored.Transfer(before=1, written=1, oversized=2)


def test_an_export_of_artemis_1_has_prefixes(tmp_path: Path) -> None:
    path = changed(
        tmp_path, ('queue-binding address="orders"', 'binding address="jms.queue.orders"'),
        ('queue-binding address="prices"', 'binding address="jms.topic.prices"'),
        ('name="orders" id="11"', 'queue-name="jms.queue.orders" id="11"'),
        ('name="audit" id', 'queue-name="audit" id'),
        ('<queue name="orders"/>', '<queue name="jms.queue.orders"/>'),
    )  # fmt: skip
    records = [each and (each.topic, dict(each.headers).get("ringfaust-queue"))
               for each in _records(path, WorkerConfig(), QUEUES)]  # fmt: skip
    assert records == [
        ("orders", None), ("messages", b"prices::audit"), ("orders", None), ("orders", None),
    ]  # fmt: skip


def test_the_rings_of_retroactive_addresses_are_left_out(tmp_path: Path) -> None:
    path = changed(tmp_path, ('name="audit"', 'name="$.artemis.internal.prices.queue.x.retro"'))
    assert [each and each.topic for each in _records(path, WorkerConfig(), QUEUES)] == [
        "orders"
    ] * 3


def test_many_properties_are_headers_as_java_writes_them(tmp_path: Path) -> None:
    path = changed(tmp_path, ("red &amp; &lt;blue&gt;", "x" * 40_000))
    first = next(iter(_records(path, WorkerConfig(), QUEUES)))
    headers = dict(first.headers) if first else {}
    assert "ringfaust-properties" not in headers
    assert (headers["even"], headers["number"], headers["half"]) == (b"false", b"1", b"0.5")


def test_a_queue_is_looked_up_once() -> None:
    places = Places(EXPORT, WorkerConfig(), QUEUES)
    one, two, _ = stored()
    assert places.record(one, "orders", "orders").topic == "orders"
    assert places.record(two, "audit", "prices").topic == "messages"


@pytest.mark.parametrize(("old", "new", "line", "says"), [
    ("aGVsbG8=", "a", 22, "the body of message ID:one cannot be read"),
    ("AQAAAAboAKwgIQA=", "AQAAAAjoAKwgIQA=", 27, "the body of message 102 cannot be read"),
    ("AQAAAAboAKwgIQA=", "AQAAAAXoAKwgIQA=", 27, "the body of message 102 cannot be read"),
    ('value="1" type="integer"', 'value="one" type="integer"', 11, "'one' is not a property"),
    ('priority="4"', 'priority="high"', 9, "priority = 'high' is not a whole number"),
    ("<activemq-journal>", "<journal>", 2, "<journal> is not an export"),
    ("</messages>", "", 35, "mismatched tag"),
])  # fmt: skip
def test_a_broken_export_names_the_line(
    old: str, new: str, line: int, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "export.xml"
    path.write_text(EXPORT.read_text().replace(old, new))
    with pytest.raises(CannotImport) as caught:
        list(ArtemisExport(path, 1_000))
    assert re.search(rf"export.xml, line \d+: .*{re.escape(says)}", str(caught.value))
    assert abs(caught.value.line - line) <= 1


def test_the_parser_keeps_no_more_than_one_message(tmp_path: Path) -> None:
    """A long export is a stream: nothing of a message remains when the next one is read."""
    head, _, rest = EXPORT.read_text().partition("<messages>")
    body = rest.partition("</messages>")[0]
    path = tmp_path / "export.xml"
    path.write_text(head + "<messages>" + body * 500 + "</messages></activemq-journal>")
    export = ArtemisExport(path, 1_000)
    waiting = [len(export._handler.done) for _ in export]
    assert len(waiting) == 1_500 and max(waiting) < 200


def test_what_artemis_2_44_has_exported_is_read() -> None:
    """Recorded: 24 messages of Fill.java, text and bytes, with properties, groups and expiry."""
    recorded = list(ArtemisExport(EXPORT.with_name("stored.xml"), 1_000_000))
    assert [each.properties["number"] for each in recorded] == list(range(24))
    assert all(each.queues == ["orders"] for each in recorded)
    for number, each in enumerate(recorded):
        assert each.body == f"message {number} <äß€😀>".encode()
        assert each.type == ("text" if number % 3 == 0 else "bytes")
        assert each.priority == (9 if number % 10 == 0 else 4)
        assert bool(each.expires_at_ms) == (number % 11 == 0)
        assert ("_AMQ_GROUP_ID" in each.properties) == (number % 7 == 0)
        colour = "red & <blue>" if number % 2 == 0 else "green"
        assert (each.properties["colour"], each.properties["half"]) == (colour, number / 2)
