"""Hostile files: configuration and scenarios are refused by line, field and value, or they work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfaust.config import QueuesConfig, WorkerConfig, load_queues, load_worker
from ringfaust.config.documents import ConfigError, check
from ringfaust.core import commands as c
from ringfaust.core.settings import FIELD_NAMES
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.records import Payload
from ringfaust.testing.scenario.memory import MemoryScenarioHost
from ringfaust.testing.scenario.player import Difference, play
from ringfaust.testing.scenario.reading import BadScenario, load

TEXT_CHARS = 900
HUGE = "9" * 4_000
HALF = '"a\\ud800"'
"""Half a character, as YAML can write it and UTF-8 cannot."""


def _queue(fields: str) -> str:
    return f"queues: {{orders: {{{fields}}}}}"


def _address(fields: str) -> str:
    return f"addresses: {{prices: {{{fields}}}}}"


QUEUES: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "UTF-16": ("queues: {}".encode("utf-16"), ("UTF-8",)),
    "no UTF-8": (b"queues: {a\xff: {}}", ("UTF-8", "byte 10")),
    "a control character": ("queues: {a\x07: {}}", ("unacceptable character #x0007",)),
    "a control character, escaped": ('queues: {"a\\0": {}}', ("NUL",)),
    "half a character": (f"queues: {{{HALF}: {{}}}}", ("half a character", "'a\\ud800'")),
    "half an address": (f"addresses: {{{HALF}: {{}}}}", ("half a character",)),
    "half a selector": (_queue(f"selector: {HALF}"), ("half a character",)),
    "deep": ("queues: " + "{a: " * 1_000 + "1" + "}" * 1_000, ("nested too deeply",)),
    "a true size": (_queue("ring_size: yes"), ("queues.orders.ring_size", "True")),
    "a huge size": (_queue(f"ring_size: {HUGE}"), ("ring_size", "9999", "64 bits")),
    "64 bits and one": (_queue(f"max_bytes: {2**63}"), ("max_bytes", str(2**63), "64 bits")),
    "a huge factor": (_queue(f"redelivery_multiplier: {HUGE}"), ("redelivery_multiplier", "9999")),
    "an infinite factor": (_queue("redelivery_multiplier: .inf"), ("redelivery_multiplier", "inf")),
    "a negative time": (_queue("redelivery_delay: -1"), ("redelivery_delay", "-1")),
    "a time beyond time": (_queue(f"consumer_timeout: {2**48}"), ("consumer_timeout", "2814")),
    "a date": (_queue("ring_size: 2024-01-01"), ("ring_size", "datetime.date")),
    "one for yes": (_queue("shared: 1"), ("queues.orders.shared", "1 is not")),
    "a bad selector": (_queue("selector: 'a = = 1'"), ("queues.orders.selector", "a = = 1")),
    "bytes": (_queue("selector: !!binary aGk="), ("selector", "b'hi'")),
    "a policy that is not": (_queue("when_full: explode"), ("when_full", "'explode'", "block")),
    "fields in a list": ("queues: {orders: [ring_size]}", ("queues.orders", "['ring_size']")),
    "a set": ("queues: !!set {orders}", ("queues", "{'orders'}")),
    "null for a name": ("queues: {~: {}}", ("queues.None", "put it in quotes")),
    "half a pattern": ("settings: {'a*.b': {}}", ("settings.a*.b", "whole words")),
    "a queue of an address": ("queues: {'a::b': {}}", ("a::b", "addresses.a.subscriptions.b")),
    "an address in two": ("addresses: {'a::b': {}}", ("a::b",)),
    "a name for both": ("queues: {a: {}}\naddresses: {a: {}}", ("queues.a", "is also an address")),
    "an unknown routing": (_address("routing: broadcast"), ("prices.routing", "'broadcast'")),
    "two for anycast": (
        _address("routing: anycast, subscriptions: {a: , b: }"), ("subscriptions", "one queue"),
    ),
    "less than nothing": (_address("retroactive_count: -1"), ("retroactive_count", "-1")),
    "more than can be": (_address(f"retroactive_count: {2**63}"), ("retroactive_count", "9223")),
    "true for a count": (_address("retroactive_count: true"), ("retroactive_count", "True")),
    "a count misspelt": (
        _address("retroactive_cuont: 1"), ("retroactive_cuont", "'retroactive_count'"),
    ),
    "a list of subscriptions": (_address("subscriptions: [a]"), ("subscriptions", "['a']")),
    "a subscription of any name": (_address("subscriptions: {'*': {}}"), ("subscriptions.*",)),
    "a nested subscription": (_address("subscriptions: {'x::y': {}}"), ("x::y",)),
    "names too long together": (
        f"addresses: {{{'a' * 200}: {{subscriptions: {{{'b' * 48}: {{}}}}}}}}", ("249",),
    ),
    "a field of a subscription": (
        _address("subscriptions: {a: {ring_size: 0}}"), ("subscriptions.a.ring_size", "0 is not"),
    ),
}  # fmt: skip

WORKER: dict[str, tuple[str, tuple[str, ...]]] = {
    "half an application": (f"application: {HALF}", ("half a character",)),
    "NUL": ('application: "a\\0"', ("application", "a\\x00")),
    "true for four": ("partitions: true", ("partitions", "True")),
    "4.0 for four": ("partitions: 4.0", ("partitions", "4.0")),
    "no number": ("partitions: .nan", ("partitions", "nan")),
    "a huge number": (f"partitions: {HUGE}", ("partitions", "9999", "10000")),
    "negative": ("tick_ms: -1", ("tick_ms", "-1")),
    "null": ("batch_records: ~", ("batch_records", "None")),
    "a list": ("data_dir: [a]", ("data_dir", "['a']")),
    "a folder of nobody": ("data_dir: ~nobody-of-that-name/x", ("data_dir", "~nobody")),
    "half a folder": (f"data_dir: {HALF}", ("half a character",)),
    "a port of digits that are none": ('bootstrap_servers: "a:²"', ("bootstrap_servers", "'a:²'")),
    "a long port": (f"bootstrap_servers: a:{HUGE}", ("bootstrap_servers", "a:9999")),
    "NUL in a host": ('bootstrap_servers: "a\\0:9"', ("bootstrap_servers", "a\\x00:9")),
    "text for settings": ("web: on", ("web", "True")),
    "a port beyond": ("web: {port: 65536}", ("web.port", "65536")),
    "one for yes": ("web: {enabled: 1}", ("web.enabled", "1")),
}


def _steps(*steps: str) -> str:
    lines = "".join(f"  - {step}\n" for step in steps)
    return f"id: hostile\nsays: nothing\nrules: [R1]\nqueues:\n  orders: {{}}\nsteps:\n{lines}"


def _send(fields: str) -> str:
    return _steps("advance: 1", f"send: {{queue: orders, ids: [A], {fields}}}")


def _attach(fields: str) -> str:
    return _steps(f"attach: {{queue: orders, consumer: c, {fields}}}")


_ONE = _steps("advance: 1")
SCENARIOS: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "no UTF-8": (b"id: \xff", (":1: ", "UTF-8")),
    "NUL": ("id: \0", (":1: ", "unacceptable character")),
    "large": ("#" * (1 << 20) + "\n", (":1: ", "larger than 1,048,576")),
    "deep": ("[" * 1_000, (":1: ", "nested too deeply")),
    "a bomb": ("a: &a [1]\nsteps: [*a, *a]\n", (":2: ", "alias")),
    "code": (_steps("advance: !!python/name:os.system"), (":7: ", "could not determine")),
    "no date": (_steps("advance: 2024-99-99"), ("not valid YAML: no timestamp",)),
    "half a character": (_steps(f"send: {{queue: {HALF}, ids: [A]}}"), (":7: ", "half a char")),
    "an empty name": (_steps("purge: {queue: ''}"), (":7: purge.queue", "''")),
    "a long name": (_steps(f"purge: {{queue: {'q' * 300}}}"), ("purge.queue", "249", "qqq")),
    "NUL in a name": (_steps('purge: {queue: "a\\0"}'), ("purge.queue", "a\\x00")),
    "a list for a name": (_steps("purge: {queue: [a]}"), ("purge.queue", "['a']")),
    "a long id": (_steps(f"send: {{queue: a, ids: [{'i' * 600}]}}"), ("send.ids", "512", "iii")),
    "a number for an id": (_steps("send: {queue: a, ids: [7]}"), ("send.ids", "7")),
    "one id": (_steps("send: {queue: a, ids: A}"), ("send.ids", "'A'")),
    "a delay beyond time": (_send(f"delay_ms: {2**41}"), (":8: send.delay_ms", str(2**41))),
    "a ttl of a float": (_send("ttl_ms: 1.5"), ("send.ttl_ms", "1.5")),
    "a true ttl": (_send("ttl_ms: true"), ("send.ttl_ms", "True")),
    "more than memory": (_send(f"bytes: {2**40}"), ("send.bytes", str(2**40))),
    "no bytes": (_send("bytes: 0"), ("send.bytes", "0")),
    "priority -1": (_send("priority: -1"), ("send.priority", "-1")),
    "a long group": (_send(f"group: {'g' * 300}"), ("send.group", "249", "ggg")),
    "no number": (_send("properties: {a: .nan}"), ("send.properties.a", "64 bits")),
    "64 bits and one": (_send(f"properties: {{a: {2**63}}}"), ("send.properties.a", "64 bits")),
    "nested": (_send("properties: {a: {b: 1}}"), ("send.properties.a", "text")),
    "half persistent": (_send("persistent: 0.5"), ("send.persistent", "0.5")),
    "both transactions": (_send("session: s, xid: x"), ("send", "not to both")),
    "true credit": (_attach("credit: true"), (":7: attach.credit", "True")),
    "credit in words": (_attach("credit: one"), ("attach.credit", "'one'")),
    "priority beyond": (_attach(f"credit: 1, priority: {2**31}"), ("attach.priority", str(2**31))),
    "a mode that is not": (_attach("credit: 1, ack_mode: maybe"), ("attach.ack_mode", "'maybe'")),
    "time beyond time": (_steps(f"advance: {2**40}", "advance: 1"), (":8: ", str(2**40))),
    "a step in no words": (_steps("7"), (":7: ", "a map with one key")),
    "a step of nothing": (_steps("purge:"), (":7: purge", "None")),
    "nothing to expect": (_steps("advance: 1\n    expect:"), (":8: expect", "None")),
    "a list to expect": (_steps("advance: 1\n    expect: {dispatched: [A]}"), ("dispatched", "[")),
    "a rule without a letter": (_ONE.replace("R1", "1"), (":3: rules", "1")),
    "a bad setting": (_ONE.replace("{}", "{ring_size: true}"), (":5: ring_size = True",)),
    "a huge setting": (_ONE.replace("{}", f"{{ring_size: {HUGE}}}"), (":5: ring_size = 9999",)),
    "settings of a pattern": (_ONE.replace("orders: {}", "a: 7"), (":5: queues.a", "7")),
}  # fmt: skip


def _written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _assert_explained(error: Exception, words: tuple[str, ...]) -> None:
    assert error.__cause__ is None
    assert len(str(error)) < TEXT_CHARS
    str(error).encode()  # it can be printed
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize("name", QUEUES)
def test_queues(tmp_path: Path, name: str) -> None:
    text, words = QUEUES[name]
    with pytest.raises(ConfigError) as caught:
        load_queues(_written(tmp_path, "queues.yaml", text))
    _assert_explained(caught.value, words)


@pytest.mark.parametrize("name", WORKER)
def test_worker(tmp_path: Path, name: str) -> None:
    text, words = WORKER[name]
    with pytest.raises(ConfigError) as caught:
        load_worker(_written(tmp_path, "worker.yaml", text))
    _assert_explained(caught.value, words)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios(tmp_path: Path, name: str) -> None:
    text, words = SCENARIOS[name]
    with pytest.raises(BadScenario) as caught:
        load(_written(tmp_path, "hostile.yaml", text))
    _assert_explained(caught.value, words)


# --- whatever else -------------------------------------------------------------------------------

NAMES = st.sampled_from(["orders", "a.b", "#", "*.x", "", "a::b", "x" * 250, "\0", "ü"]) | st.text()
VALUES = (
    st.sampled_from([0, 1, -1, 3, 2**63, -(2**70), True, None, "", "oldest", "a = 1", "1", [], {}])
    | st.floats()
    | st.text(max_size=20)
    | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
)
FIELDS = st.dictionaries(st.sampled_from([*FIELD_NAMES, "ring_sise", ""]), VALUES, max_size=3)
TABLE = st.dictionaries(NAMES, FIELDS | VALUES, max_size=3)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "queues": TABLE | VALUES,
            "settings": TABLE | VALUES,
            "addresses": st.dictionaries(
                NAMES,
                st.fixed_dictionaries(
                    {}, optional={
                        "routing": st.sampled_from(["anycast", "multicast"]) | VALUES,
                        "retroactive_count": VALUES,
                        "subscriptions": TABLE | VALUES,
                    },
                )
                | VALUES,
                max_size=2,
            ),
        },
    )
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_any_queues_work_or_are_refused(data: dict[str, Any]) -> None:
    try:
        config = check(QueuesConfig, data, "here")
    except ConfigError as error:
        assert error.faults
        return
    host = MemoryHost(config.catalog())
    for name in [*config.queues, *config.addresses]:
        host.step(c.Send(name, "m", 0, payload=Payload(None, b"", (), "in/0/0")), 0)
    host.crash()


@given(st.dictionaries(st.sampled_from([*WorkerConfig.model_fields, "x"]), VALUES, max_size=4))
@settings(max_examples=150, deadline=None)
def test_any_worker_works_or_is_refused(data: dict[str, Any]) -> None:
    try:
        config = check(WorkerConfig, data, "here")
    except ConfigError as error:
        assert error.faults
    else:
        assert config.data_dir.is_absolute()


KINDS = [
    "send",
    "attach",
    "credit",
    "ack",
    "configure",
    "create_queue",
    "begin",
    "advance",
    "redrive",
]
ARGUMENTS = st.dictionaries(
    st.sampled_from(
        ["queue", "address", "ids", "consumer", "credit", "add", "priority", "delay_ms", "ttl_ms",
         "xid", "session", "selector", "ring_size", "bytes", "from", "properties", "group", "id"]
    ),
    VALUES | st.sampled_from(["orders", ["A"], ["A", "A"], "dead", "c"]),
    max_size=5,
)  # fmt: skip


@given(
    steps=st.lists(
        st.dictionaries(st.sampled_from(KINDS), ARGUMENTS | VALUES, min_size=1, max_size=1)
    )
)
@settings(max_examples=100, deadline=None)
def test_any_scenario_is_played_or_refused(tmp_path_factory: Any, steps: list[Any]) -> None:
    raw = {"id": "any", "says": "x", "rules": [], "queues": {"orders": {"ring_size": 2}}}
    text = yaml.safe_dump({**raw, "steps": steps}, allow_unicode=True)
    path = _written(tmp_path_factory.getbasetemp(), "any.yaml", text)
    try:
        play(load(path), MemoryScenarioHost())
    except (BadScenario, Difference) as error:
        assert isinstance(error, Difference) or str(error).startswith(f"{path}:")
