"""Input that nobody should send: control records and headers, each with words of its refusal.

Numbers too large for what holds them, true where a number is asked for, what is no UTF-8, no JSON
or too deep, names that are empty or too long, fields that nobody knows.
"""

from __future__ import annotations

import json
from typing import Any

HUGE = "9" * 4_000
"""A whole number that Python still reads, and no float can hold."""
LONG = "x" * 64_000
DEEP = "[" * 20_000 + "]" * 20_000


def _json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def _attach(**fields: Any) -> bytes:
    given = {"type": "attach", "queue": "orders", "consumer": "me", "credit": 1, "reply": "me/1"}
    return _json({**given, **fields})


def _configure(value: str, name: str = "ring_size") -> bytes:
    text = '{"type":"configure","queue":"orders","reply":"me/1","settings":{"%s":%s}}'
    return (text % (name, value)).encode()


NO_COMMANDS: dict[str, tuple[bytes | None, tuple[str, ...]]] = {
    "no value": (None, ("JSON",)),
    "empty": (b"", ("Invalid JSON", "b''")),
    "blank": (b" \n\t", ("Invalid JSON",)),
    "NUL": (b"\x00", ("Invalid JSON",)),
    "null": (b"null", ("an object", "None")),
    "a number": (b"7", ("an object", "7")),
    "a list": (b"[]", ("an object", "[]")),
    "no JSON": (b"{type: purge}", ("Invalid JSON", "{type: purge}")),
    "cut off": (b'{"type":"purge","queue":"ord', ("Invalid JSON",)),
    "two commands": (b'{"type":"purge","queue":"orders"} {}', ("trailing characters",)),
    "a mark before it": (b'\xef\xbb\xbf{"type":"purge","queue":"orders"}', ("Invalid JSON",)),
    "UTF-16": ('{"type":"purge","queue":"orders"}'.encode("utf-16"), ("Invalid JSON",)),
    "no UTF-8": (b'{"type":"purge","queue":"\xff\xfe"}', ("Invalid JSON",)),
    "half a character": (b'{"type":"purge","queue":"\\ud83d"}', ("Invalid JSON",)),
    "a raw control character": (b'{"type":"purge","queue":"a\nb"}', ("Invalid JSON",)),
    "too deep": (_configure(DEEP), ("recursion limit",)),
    "too long": (b'{"type":"' + b"x" * 70_000 + b'"}', ("70011 bytes", "65536")),
    "no type": (b'{"queue":"orders"}', ("type",)),
    "a type that is not": (_json({"type": "destroy", "queue": "orders"}), ("'destroy'",)),
    "a type in capitals": (_json({"type": "PURGE", "queue": "orders"}), ("'PURGE'",)),
    "a type that is a list": (b'{"type":["purge"],"queue":"orders"}', ("purge",)),
    "a long type": (_json({"type": LONG}), ("xxxxx",)),
    "a newer version": (_attach(v=2), ("attach.v", "2")),
    "true for a version": (_attach(v=True), ("attach.v", "True")),
    "an unknown field": (_attach(prio=1), ("attach.prio", "1")),
    "a field missing": (b'{"type":"ack","queue":"orders","consumer":"me"}', ("ack.message",)),
    "an empty name": (_attach(queue=""), ("attach.queue", "''")),
    "a long name": (_attach(consumer="c" * 250), ("attach.consumer", "249", "ccccc")),
    "NUL in a name": (_attach(consumer="a\0b"), ("attach.consumer", "a\\x00b")),
    "a number for a name": (_attach(queue=7), ("attach.queue", "7")),
    "a list for a name": (_attach(queue=["orders"]), ("attach.queue", "orders")),
    "null for a name": (_attach(queue=None), ("attach.queue", "None")),
    "true for a number": (_attach(credit=True), ("attach.credit", "True")),
    "text for a number": (_attach(credit="1"), ("attach.credit", "'1'")),
    "a share of one": (_attach(credit=1.5), ("attach.credit", "1.5")),
    "a whole float": (_attach(credit=1.0), ("attach.credit", "1.0")),
    "not a number": (_attach(credit=float("nan")), ("attach.credit", "nan")),
    "infinite": (b'{"type":"credit","queue":"q","consumer":"c","add":1e999}', ("add", "inf")),
    "negative": (_attach(credit=-1), ("attach.credit", "-1")),
    "one too many": (_attach(credit=100_001), ("attach.credit", "100000", "100001")),
    "64 bits and one": (_attach(credit_bytes=2**63), ("credit_bytes", str(2**63))),
    "a huge number": (
        _attach(credit=0).replace(b": 0,", b": " + HUGE.encode() + b","), ("attach.credit", "9999"),
    ),
    "a number of 5,000 digits": (_configure("9" * 5_000), ("number out of range",)),
    "an unknown mode": (_attach(ack_mode="none_at_all"), ("ack_mode", "none_at_all")),
    "priority beyond 32 bits": (_attach(priority=2**31), ("attach.priority", str(2**31))),
    "one for true": (
        b'{"type":"subscribe","address":"prices","consumer":"c","credit":1,"shared":1}',
        ("subscribe.shared", "1"),
    ),
    "a text of 2,001 characters": (
        _json({"type": "reject", "queue": "orders", "consumer": "holder", "message": "D",
               "text": "t" * 2_001}),
        ("reject.text", "2000"),
    ),
    "a time beyond time": (
        _json({"type": "release", "queue": "orders", "consumer": "holder", "message": "D",
               "delay_ms": 2**47 + 1}),
        ("release.delay_ms", str(2**47 + 1)),
    ),
    "settings that are none": (
        _json({"type": "configure", "queue": "orders", "settings": [1]}), ("settings", "[1]"),
    ),
    "pausing what is not": (
        _json({"type": "pause", "queue": "orders", "what": "all"}), ("pause.what", "'all'"),
    ),
    "a long list": (
        _json({"type": "list", "queue": "orders", "limit": 10_001}), ("list.limit", "10001"),
    ),
    "a reply that is no text": (_attach(reply=7), ("attach.reply", "7")),
    "a long reply": (_attach(reply="r" * 250), ("attach.reply", "249")),
}  # fmt: skip
"""Control records that are no command at all: they go to the dead topic."""


def _of(kind: str, **fields: Any) -> bytes:
    return _json({"type": kind, "reply": "me/1", **fields})


def _settle(kind: str, message: str, consumer: str = "holder", **fields: Any) -> bytes:
    return _of(kind, queue="orders", consumer=consumer, message=message, **fields)


REFUSED: dict[str, tuple[bytes, str, tuple[str, ...]]] = {
    "no such queue": (_of("purge", queue="Orders"), "unknown_queue", ("'Orders'",)),
    "no such address": (
        _of("subscribe", address="orders", consumer="c", credit=1), "unknown_queue", ("'orders'",),
    ),
    "a name in use": (_attach(consumer="holder"), "bad_command", ("attached",)),
    "the window's name": (_attach(consumer="@window"), "bad_command", ("window",)),
    "a bad selector": (_attach(selector="a = = 1"), "bad_selector", ("character 5", "a = = 1")),
    "a blank selector": (_attach(selector="  "), "bad_selector", ("blank",)),
    "a long selector": (_attach(selector="a" * 60_000), "bad_selector", ("4096",)),
    "NUL in a selector": (_attach(selector="a = '\0' AND \0"), "bad_selector", ("character 13",)),
    "more credit than there is": (
        _of("credit", queue="orders", consumer="holder", add=2**63 - 1), "bad_command", ("100000",),
    ),
    "more bytes than there are": (_attach(credit_bytes=2**63 - 1), "bad_command", ("_bytes",)),
    "an ack of nothing": (_settle("ack", "nothing"), "unknown_delivery", ("never held",)),
    "an ack of a prepared one": (_settle("ack", "A"), "stale_delivery", ("settled",)),
    "an ack of what came back": (_settle("ack", "C"), "stale_delivery", ("settled or returned",)),
    "an ack by nobody": (_settle("ack", "D", "nobody"), "bad_command", ("ever attached",)),
    "an ack of another delivery": (
        _settle("ack", "D", delivery=2**63 - 1), "unknown_delivery", ("never held",),
    ),
    "an ack in no transaction": (_settle("ack", "D", xid="nobody"), "bad_command", ("xid",)),
    "an ack in a prepared one": (_settle("ack", "D", xid="prepared"), "bad_command", ("prepared",)),
    "begun twice": (_of("begin", xid="open"), "bad_command", ("open",)),
    "committed unprepared": (_of("commit", xid="open"), "bad_command", ("prepare",)),
    "committed by nobody": (_of("commit", xid="nobody"), "bad_command", ("xid",)),
    "rolled back by nobody": (_of("rollback", session="nobody"), "bad_command", ("session",)),
    "not a setting": (_configure("1", "ring_sise"), "bad_command", ("ring_sise", "ring_size")),
    "true for a size": (_configure("true"), "bad_command", ("ring_size = True", "1 or more")),
    "text for a size": (_configure('"3"'), "bad_command", ("ring_size = '3'", "1 or more")),
    "no ring at all": (_configure("0"), "bad_command", ("ring_size = 0", "1 or more")),
    "less than none": (_configure("-7"), "bad_command", ("ring_size = -7", "1 or more")),
    "a size of 64 bits": (_configure(str(2**63)), "bad_command", ("ring_size = 9223", "64 bits")),
    "a huge size": (_configure(HUGE), "bad_command", ("ring_size = 9999", "64 bits")),
    "a huge factor": (
        _configure(HUGE, "redelivery_multiplier"), "bad_command", ("redelivery_multiplier = 9999",),
    ),
    "no factor": (
        _configure("NaN", "redelivery_multiplier"), "bad_command", ("redelivery_multiplier = nan",),
    ),
    "an infinite share": (
        _configure("1e999", "redelivery_jitter"), "bad_command", ("redelivery_jitter = inf",),
    ),
    "a time beyond time": (
        _configure(str(2**47 + 1), "consumer_timeout"), "bad_command", ("consumer_timeout =",),
    ),
    "deep settings": (_configure("[" * 90 + "]" * 90), "bad_command", ("ring_size = [[",)),
    "a long setting": (_configure("1", LONG), "bad_command", ("no such queue setting",)),
    "a long value": (_configure(f'"{LONG}"', "evict"), "bad_command", ("evict = 'xxx", "oldest")),
    "one that is right": (
        _of("configure", queue="orders", settings={"ring_size": 1, "evict": "nobody"}),
        "bad_command", ("evict = 'nobody'",),
    ),
    "a queue that is there": (_of("create_queue", queue="orders"), "bad_command", ("exists",)),
    "an address that is there": (_of("create_queue", queue="prices"), "bad_command", ("address",)),
    "a queue of no address": (_of("create_queue", queue="none::q"), "unknown_queue", ("'none'",)),
    "a queue without a name": (_of("create_queue", queue="prices::"), "bad_command", ("::name",)),
    "a bad address setting": (
        _of("configure_address", address="prices", settings={"retroactive_count": 2**63}),
        "bad_command", ("retroactive_count = 9223",),
    ),
    "a queue's setting": (
        _of("configure_address", address="prices", settings={"ring_size": 1}),
        "bad_command", ("no such address setting", "routing"),
    ),
    "a queue in a transaction": (_of("delete_queue", queue="orders"), "bad_command", ("decide",)),
    "a message that is held": (_of("remove", queue="orders", message="A"), "bad_command", ("id",)),
    "moved nowhere": (_of("move", queue="orders", message="E", to="x"), "unknown_queue", ("'x'",)),
    "moved where it is full": (
        _of("move", queue="orders", message="E", to="strict"), "queue_full", ("'strict'",),
    ),
    "not scheduled": (
        _of("deliver_now", queue="orders", message="E"), "bad_command", ("scheduled",),
    ),
    "a tick": (_of("tick", now_ms=2**47), "bad_command", ("clock",)),
}  # fmt: skip
"""Commands that are read, and refused: reason, and words of the text."""

_TO = ("to", b"orders")
HEADERS: dict[str, tuple[list[tuple[str, bytes | None]], tuple[str | bytes, ...]]] = {
    "no queue": ([], ("header:to",)),
    "an empty queue": ([("to", b"")], ("name", "1 to 249")),
    "no value for a queue": ([("to", None)], ("header:to",)),
    "a long queue": ([("to", b"q" * 250)], ("name", "249", "qqq")),
    "NUL in a queue": ([("to", b"a\0b")], ("name", "a\\x00b")),
    "no UTF-8 for a queue": ([("to", b"\xff")], ("header:to", "UTF-8")),
    "a surrogate for a queue": ([("to", b"\xed\xa0\x80")], ("header:to", "UTF-8")),
    "no UTF-8 for an id": ([_TO, ("ringfaust-id", b"\xc3\x28")], ("ringfaust-id", "UTF-8")),
    "a long id": ([_TO, ("ringfaust-id", b"i" * 513)], ("ringfaust-id", "512")),
    "NUL in an id": ([_TO, ("ringfaust-id", b"a\0")], ("ringfaust-id", "NUL")),
    "priority 10": ([_TO, ("ringfaust-priority", b"10")], ("ringfaust-priority", "b'10'")),
    "priority -1": ([_TO, ("ringfaust-priority", b"-1")], ("ringfaust-priority", "b'-1'")),
    "priority high": ([_TO, ("ringfaust-priority", b"high")], ("ringfaust-priority", "b'high'")),
    "no priority": ([_TO, ("ringfaust-priority", b"")], ("ringfaust-priority", "b''")),
    "a raised priority": ([_TO, ("ringfaust-priority", "²".encode())], ("ringfaust-priority",)),
    "a float": ([_TO, ("ringfaust-ttl-ms", b"1e3")], ("ringfaust-ttl-ms", "b'1e3'")),
    "a huge time": (
        [_TO, ("ringfaust-delay-ms", b"9" * 5000)], ("ringfaust-delay-ms", "b'9999"),
    ),
    "a delay beyond time": (
        [_TO, ("ringfaust-delay-ms", b"%d" % 2**47)], ("ringfaust-delay-ms", b"%d" % 2**47),
    ),
    "a blank number": ([_TO, ("ringfaust-deliver-at-ms", b" 7")], ("deliver-at-ms", "b' 7'")),
    "a signed number": ([_TO, ("ringfaust-expires-at-ms", b"+7")], ("expires-at-ms", "b'+7'")),
    "a long group": ([_TO, ("ringfaust-group", b"g" * 250)], ("ringfaust-group", "249")),
    "a long xid": ([_TO, ("ringfaust-xid", b"x" * 250)], ("ringfaust-xid", "249")),
    "half persistent": (
        [_TO, ("ringfaust-delivery-mode", b"rarely")], ("ringfaust-delivery-mode", "b'rarely'"),
    ),
    "many redrives": ([_TO, ("ringfaust-redrives", b"1000000001")], ("ringfaust-redrives", "b'10")),
    "no properties": ([_TO, ("ringfaust-properties", b"")], ("ringfaust-properties", "b''")),
    "a list of properties": ([_TO, ("ringfaust-properties", b"[1]")], ("properties", "b'[1]'")),
    "a nested property": (
        [_TO, ("ringfaust-properties", b'{"a":{}}')], ("ringfaust-properties", "'a' is {}"),
    ),
    "no number": ([_TO, ("ringfaust-properties", b'{"a":NaN}')], ("ringfaust-properties", "NaN")),
    "an infinite number": (
        [_TO, ("ringfaust-properties", b'{"a":-1e999}')], ("ringfaust-properties", "'a' is -inf"),
    ),
    "64 bits and one": (
        [_TO, ("ringfaust-properties", b'{"a":%d}' % 2**63)], (f"'a' is {2**63}", "64 bits"),
    ),
    "a huge property": (
        [_TO, ("ringfaust-properties", b'{"a":' + b"9" * 5000 + b"}")], ("ringfaust-properties",),
    ),
    "deep properties": (
        [_TO, ("ringfaust-properties", DEEP[:16_000].encode())], ("ringfaust-properties", "[[["),
    ),
    "long properties": (
        [_TO, ("ringfaust-properties", b'{"a":"' + LONG.encode() + b'"}')], ("32768", "64008"),
    ),
    "properties in UTF-16": (
        [_TO, ("ringfaust-properties", '{"a":1}'.encode("utf-16"))], ("ringfaust-properties",),
    ),
    "a mark before properties": (
        [_TO, ("ringfaust-properties", b'\xef\xbb\xbf{"a":1}')], ("ringfaust-properties",),
    ),
    "too many headers": ([_TO, *[("h", b"")] * 10_000], ("10001 headers", "10000")),
    "too large": ([_TO, ("h", b"x" * 100_000)], ("bytes", "100000")),
    "what cannot be read": ([("ringfaust-unreadable", b"\xff says so")], ("says so",)),
}  # fmt: skip
"""Headers of produced records that make no sense: they go to the dead topic."""
