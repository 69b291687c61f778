"""`ringfaust import rabbitmq`: the setting that wins in RabbitMQ wins here, and nothing widens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringfaust.config import load_queues
from ringfaust.core.model import Message
from ringfaust.core.selector import compile_selector
from ringfaust.importers.imported import Verdict
from ringfaust.importers.write import write
from ringfaust.protocol.records import Payload
from tests.importers.definitions import binding, imported, operator, policy, queue

QUORUM = {"queue_type": "quorum"}


@pytest.mark.parametrize(("arguments", "of_policy", "of_operator", "fields"), [
    # A6: the smallest limit applies, wherever it is set.
    ({"max_length": 100_000}, {"max_length": 10}, {}, {"ring_size": 10}),
    ({"max_length": 10}, {"max_length": 100_000}, {}, {"ring_size": 10}),
    ({"max_length": 9}, {"max_length": 8}, {"max_length": 7}, {"ring_size": 7}),
    ({"max_length": 7}, {"max_length": 8}, {"max_length": 9}, {"ring_size": 7}),
    ({}, {"max_length": 8}, {"max_length": 9}, {"ring_size": 8}),
    ({}, {}, {"max_length": 7}, {"ring_size": 7}),
    (QUORUM | {"delivery_limit": 50}, {"delivery_limit": 3}, {}, {"max_attempts": 4}),
    (QUORUM | {"delivery_limit": -1}, {"delivery_limit": 3}, {}, {"max_attempts": 4}),
    (QUORUM | {"delivery_limit": 3}, {"delivery_limit": -1}, {}, {"max_attempts": 4}),
    # The overflow of a classic queue is its argument's; that of a quorum queue its policy's.
    ({"overflow": "reject-publish"}, {"overflow": "drop-head", "max_length": 5}, {},
     {"max_messages": 5, "when_full": "reject_newest"}),
    (QUORUM | {"overflow": "reject-publish"}, {"overflow": "drop-head", "max_length": 5}, {},
     {"ring_size": 5}),
    (QUORUM | {"overflow": "drop-head"}, {"overflow": "reject-publish", "max_length": 5}, {},
     {"max_messages": 5, "when_full": "reject_newest"}),
    (QUORUM | {"max_length": 4, "overflow": "reject-publish-dlx"}, {}, {}, {"ring_size": 4}),
    ({"max_length": 4, "overflow": "reject-publish-dlx"}, {}, {},
     {"max_messages": 4, "when_full": "reject_newest"}),
    # A8: the head of a priority queue is of the highest priority.
    ({"max_length": 2, "max_priority": 10}, {}, {}, {"ring_size": 2, "evict": "head"}),
    ({"max_priority": 10}, {"max_length": 2}, {}, {"ring_size": 2, "evict": "head"}),
    ({"max_length": 2, "max_priority": 10, "overflow": "reject-publish"}, {}, {},
     {"max_messages": 2, "when_full": "reject_newest"}),
    # A classic queue has no delivery limit.
    ({"delivery_limit": 3}, {"max_length": 2}, {}, {"ring_size": 2, "max_attempts": -1}),
])  # fmt: skip
def test_what_applies_is_what_rabbitmq_applies(
    arguments: dict[str, Any], of_policy: dict[str, Any], of_operator: dict[str, Any],
    fields: dict[str, Any], tmp_path: Path,
) -> None:  # fmt: skip
    found = imported(
        tmp_path, queues=[queue("q", **arguments)], policies=[policy("p", "^q$", **of_policy)],
        parameters=[operator(**of_operator)],
    )  # fmt: skip
    got = dict(found.queues["q"])
    if "max_attempts" not in fields:
        got.pop("max_attempts", None)
    assert got == fields
    said = [each.setting for each in found.findings]
    for owner, given_ in (("queue q", arguments), ("queue q, policy p", of_policy),
                         ("queue q, operator policy op", of_operator)):  # fmt: skip
        for key, value in given_.items():
            line = f"{owner}, {key.replace('_', '-')} = {value}"
            assert said.count(line) == 1, line


@pytest.mark.parametrize(("arguments", "key", "applies"), [
    ({}, "delivery-limit", False), (QUORUM, "delivery-limit", True),
    ({}, "target-group-size", False), (QUORUM, "target-group-size", True),
    ({}, "max-in-memory-length", False), ({}, "max-in-memory-bytes", False),
    ({}, "dead-letter-strategy", False), ({}, "max-age", False), (QUORUM, "max-age", False),
    (QUORUM, "ha-mode", False), ({}, "ha-mode", True), (QUORUM, "queue-mode", False),
    ({}, "queue-mode", True), (QUORUM, "message-ttl", True),
])  # fmt: skip
def test_a_policy_with_what_the_type_of_queue_lacks_does_not_apply_at_all(
    arguments: dict[str, Any], key: str, applies: bool, tmp_path: Path
) -> None:
    """The next one does."""
    better = policy("better", "^q$", priority=2, max_length=7, **{key: 3})
    found = imported(
        tmp_path, queues=[queue("q", **arguments)],
        policies=[policy("worse", "^q$", max_length=5), better],
    )  # fmt: skip
    assert found.queues["q"]["ring_size"] == (7 if applies else 5)
    if not applies and not arguments:
        assert found.queues["q"]["max_attempts"] == -1


@pytest.mark.parametrize(("version", "most"), [("3.13.7", 5), ("4.0.1", 7)])
def test_a_leader_locator_is_for_classic_queues_since_version_4(
    version: str, most: int, tmp_path: Path
) -> None:
    better = policy("better", "^q$", priority=2, max_length=7, queue_leader_locator="balanced")
    policies = [policy("worse", "^q$", max_length=5), better]
    found = imported(tmp_path, rabbit_version=version, queues=[queue("q")], policies=policies)
    assert found.queues["q"]["ring_size"] == most


@pytest.mark.parametrize(("queues", "policies", "fields"), [
    # A7: a policy that lost, or belongs elsewhere, touches no queue of the file.
    ([queue("a.b")], [policy("won", ".*", priority=1, ha_mode="all"),
                      policy("lost", ".*", max_length=3)], {}),
    ([queue("a.b")], [policy("lab", ".*", vhost="lab", max_length=3)], {}),
    ([queue("a.b")], [policy("s", ".*", to="streams", max_length=3)], {}),
    ([queue("a.b")], [policy("s", "^a\\.", to="quorum_queues", max_length=3)], {}),
    ([queue("a.b"), queue("c", "lab")], [policy("root", "^lab\\.", max_length=3)], {}),
    ([queue("a.b"), queue("c", "lab")], [policy("all", ".*", max_length=3)], {}),
    ([queue("x")], [policy("e", "^a\\.", to="exchanges", max_length=3)], {}),
    # For queues that come later a policy is a setting, of the highest priority alone.
    ([queue("x")], [policy("later", "^a\\.", max_length=3)], {"a.#": {"ring_size": 3}}),
    ([queue("x"), queue("y", "lab")], [policy("later", "^a\\.", vhost="lab", max_length=3)],
     {"lab.a.#": {"ring_size": 3}}),
    ([queue("x")], [policy("wide", "^a\\.", max_length=3, message_ttl=5),
                    policy("narrow", "^a\\.b\\.", priority=2, max_length=4)],
     {"a.b.#": {"ring_size": 4}}),
    # One that is found anywhere, or after any character, has no pattern here.
    ([queue("x")], [policy("anywhere", "a\\.", max_length=3)], {}),
    ([queue("x")], [policy("any", "^a.", max_length=3)], {}),
    ([queue("x")], [policy("full", "^a\\..*$", max_length=3)], {"a.#": {"ring_size": 3}}),
])  # fmt: skip
def test_a_policy_never_holds_for_more_queues(
    queues: list[dict[str, Any]], policies: list[dict[str, Any]], fields: dict[str, Any],
    tmp_path: Path,
) -> None:  # fmt: skip
    found = imported(tmp_path, queues=queues, policies=policies)
    assert found.settings == fields
    for each in policies:
        about = [line for line in found.findings if each["name"] in line.setting]
        assert about, f"policy {each['name']} has no line"


@pytest.mark.parametrize(("exchange", "key", "gets", "not_"), [
    ("amq.topic", "pressure.#", ["pressure", "pressure.low"], ["wind"]),
    ("amq.fanout", "", ["", "any"], []),
    ("amq.direct", "k", ["k"], ["k.k"]),
])  # fmt: skip
def test_the_exchanges_of_every_host_are_known(
    exchange: str, key: str, gets: list[str], not_: list[str], tmp_path: Path
) -> None:
    """B5: `export_definitions` leaves them out."""
    found = imported(tmp_path, queues=[queue("q")], bindings=[binding(exchange, "q", key)])
    members: Any = found.addresses[exchange]["subscriptions"]
    selector = compile_selector(members["q"]["selector"]) if members["q"]["selector"] else None

    def matches(routing_key: str) -> bool:
        payload = Payload(None, b"", (("routing_key", routing_key.encode()),), "t/0/0")
        message = Message("m", 1, 0, 4, 0, 0, 0, "", 0, 0, (), 0, payload)
        return selector is None or selector.matches(message)

    assert [each for each in (*gets, *not_) if matches(each)] == gets


@pytest.mark.parametrize(("arguments", "gets", "not_"), [
    ({"h": "1", "x-h": "1"}, [{"h": "1"}], [{"x-h": "1"}, {}]),
    ({"h": "1", "x-h": "1", "x-match": "all-with-x"}, [{"h": "1", "x-h": "1"}], [{"h": "1"}]),
    ({"h": "1", "x-h": "1", "x-match": "any"}, [{"h": "1"}], [{"x-h": "1"}]),
    ({"h": "1", "x-h": "1", "x-match": "any-with-x"}, [{"h": "1"}, {"x-h": "1"}], [{"h": "2"}]),
    ({"content-type": "json", "and": "1"}, [{"content-type": "json", "and": "1"}], [{"and": "1"}]),
    ({"JMSPriority": "9"}, [{"JMSPriority": "9"}], [{}]),
    ({"x-h": "1", "x-match": "all"}, [{}, {"x-h": "2"}], []),
])  # fmt: skip
def test_a_headers_binding_matches_the_same_headers(
    arguments: dict[str, str], gets: list[dict[str, str]], not_: list[dict[str, str]],
    tmp_path: Path,
) -> None:  # fmt: skip
    bound = {**binding("amq.headers", "q"), "arguments": arguments}
    found = imported(tmp_path, queues=[queue("q")], bindings=[bound])
    members: Any = found.addresses["amq.headers"]["subscriptions"]
    selector = members["q"]["selector"]

    def matches(headers: dict[str, str]) -> bool:
        encoded = tuple((name, value.encode()) for name, value in headers.items())
        message = Message("m", 1, 0, 4, 0, 0, 0, "", 0, 0, (), 0,
                          Payload(None, b"", encoded, "t/0/0"))  # fmt: skip
        return not selector or compile_selector(selector).matches(message)

    assert [each for each in (*gets, *not_) if matches(each)] == gets
    (line,) = [each for each in found.findings if each.setting.startswith("binding")]
    assert line.verdict is Verdict.CHANGED


def test_an_exchange_that_nobody_declares_is_not_guessed(tmp_path: Path) -> None:
    found = imported(tmp_path, queues=[queue("q")], bindings=[binding("gone", "q", "k")])
    assert found.addresses == {} and "q" in found.queues
    (line,) = [each for each in found.findings if each.setting.startswith("binding")]
    assert line.verdict is Verdict.NONE and "does not declare the exchange gone" in line.text


@pytest.mark.parametrize(("bindings", "is_read"), [(1, True), (120, True), (1500, False)])
def test_a_queue_may_have_many_bindings(bindings: int, is_read: bool, tmp_path: Path) -> None:
    """B6: one flat condition, or a line that it is too long."""
    found = imported(
        tmp_path, queues=[queue("watch")], exchanges=[{"name": "berths", "type": "direct"}],
        bindings=[binding("berths", "watch", f"berth-{number}") for number in range(bindings)],
    )  # fmt: skip
    write(found, tmp_path / "to")
    members: Any = load_queues(tmp_path / "to" / "queues.yaml").addresses["berths"].subscriptions
    selector = members["watch"]["selector"]
    assert bool(selector) is is_read
    too_long = [each for each in found.findings if "is too long" in each.text]
    assert len(too_long) == (0 if is_read else bindings)
    if is_read:
        compiled = compile_selector(selector)
        payload = Payload(None, b"", (("routing_key", f"berth-{bindings - 1}".encode()),), "t/0/0")
        assert compiled.matches(Message("m", 1, 0, 4, 0, 0, 0, "", 0, 0, (), 0, payload))


@pytest.mark.parametrize(("write_", "topics"), [
    (".*", {"south.till", "south.bill.out", "south.free"}), ("^bill\\..*$", {"south.bill.out"}),
    ("^(till|none)$", {"south.till"}), ("ill", {"south.till", "south.bill.out"}),
    ("^none$", set()), ("", set()),
    # RabbitMQ checks the exchange, of which a queue's name is none.
    ("^(only|free|receipts)$", set()), ("^amq\\.default$", {"south.free"}),
])  # fmt: skip
def test_a_permission_is_a_pattern_of_its_virtual_host(
    write_: str, topics: set[str], tmp_path: Path
) -> None:
    """B7: the pattern is searched for, as RabbitMQ does, among names of the same host."""
    permission = {"user": "u", "vhost": "south", "configure": "", "write": write_, "read": ""}
    found = imported(
        tmp_path, permissions=[permission],
        queues=[queue("receipts"), queue("receipts", "south"), queue("only", "south"),
                queue("free", "south")],
        exchanges=[{"name": "till", "vhost": "/", "type": "fanout"},
                   {"name": "till", "vhost": "south", "type": "topic"},
                   {"name": "bill.out", "vhost": "south", "type": "fanout"}],
        bindings=[binding("till", "receipts"), binding("till", "receipts", "c.#", "south"),
                  binding("bill.out", "only", vhost="south")],
    )  # fmt: skip
    assert {acl.split("--topic ")[1] for acl in found.acls if "User:u" in acl} == topics
    (line,) = [each for each in found.findings if each.setting.startswith("permissions")]
    assert ("covers no exchange" in line.text) is (bool(write_) and not topics)
