"""`ringfaust import rabbitmq`: what RabbitMQ decides otherwise than one may guess."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringfaust.importers import rabbitmq_bindings
from ringfaust.importers.imported import Imported, Verdict
from ringfaust.importers.write import write
from tests.importers.definitions import binding, imported, operator, policy, queue

QUORUM, STREAM = {"queue_type": "quorum"}, {"queue_type": "stream"}


def lines(found: Imported, about: str) -> list[tuple[Verdict, str]]:
    """Verdict and text of each line about exactly this."""
    return [(each.verdict, each.text) for each in found.findings if each.setting == about]


def exchange(name: str, kind: str = "fanout", vhost: str = "/", **more: Any) -> dict[str, Any]:
    return {"name": name, "vhost": vhost, "type": kind, "arguments": {}, **more}


# --- dead letters --------------------------------------------------------------------------------

DEAD = "dead letters and expired messages to "
DLX, KEYED = {"dead_letter_exchange": "dlx"}, {"dead_letter_exchange": "keys"}
TO_QUEUE = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
ON_QUORUM = policy("p", "^q$", to="quorum_queues", dead_letter_exchange="dlx")


@pytest.mark.parametrize(("definitions", "filled"), [
    ({"queues": [queue("q", **DLX), queue("dead")]}, {"dlx", "dead"}),
    ({"queues": [queue("q"), queue("dead")],
      "policies": [policy("p", "^q$", dead_letter_exchange="dlx")]},
     {"dlx", "dead"}),
    ({"queues": [queue("q", **TO_QUEUE), queue("dead")]}, {"dead"}),
    ({"queues": [queue("q"), queue("dead")],
      "policies": [policy("p", "^q$", dead_letter_exchange="dlx", priority=1),
                   policy("lost", "^q$", dead_letter_exchange="other")]},
     {"dlx", "dead"}),
    ({"queues": [queue("q", dead_letter_exchange=""), queue("dead")]}, set()),
    ({"queues": [queue("q", **DLX, dead_letter_routing_key="k"), queue("dead")]}, {"dlx", "dead"}),
    ({"queues": [queue("q", **KEYED, dead_letter_routing_key="k"), queue("r"), queue("s")]},
     {"keys", "r"}),
    ({"queues": [queue("q", **KEYED), queue("r"), queue("s")]}, {"keys", "r", "s"}),
    ({"queues": [queue("q", dead_letter_exchange="gone"), queue("dead")]}, set()),
    ({"queues": [queue("q"), queue("dead")]}, set()),
    ({"queues": [queue("q"), queue("dead")], "policies": [ON_QUORUM]}, set()),
    ({"queues": [queue("q", **STREAM, **DLX), queue("dead")]}, set()),
    ({"queues": [queue("q", "lab", **DLX), queue("dead")]}, set()),
])  # fmt: skip
def test_who_got_dead_letters_is_told_that_nothing_sends_them(
    definitions: dict[str, Any], filled: set[str], tmp_path: Path
) -> None:
    found = imported(
        tmp_path, exchanges=[exchange("dlx"), exchange("other"), exchange("keys", "direct")],
        bindings=[binding("dlx", "dead"), binding("keys", "r", "k"), binding("keys", "s", "o")],
        **definitions,
    )  # fmt: skip
    said = [each for each in found.findings if each.setting.startswith(DEAD)]
    assert {each.setting.removeprefix(DEAD) for each in said} == filled
    assert len(said) == len(filled)
    assert all(each.verdict is Verdict.CHANGED for each in said)
    assert all("go to the topic ringfaust.dead instead" in each.text for each in said)


# --- types of queues -----------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "says"), [
    ("stream", "a stream is read again and again"),
    ("rabbit_stream_queue", "a stream is read again and again"),
    ("jms", "a queue of type jms is not known here"),
    (7, "a queue of type 7 is not known here"),
])  # fmt: skip
def test_a_queue_that_is_none_here_has_one_line_and_is_not_declared(
    kind: object, says: str, tmp_path: Path
) -> None:
    read = {"user": "u", "vhost": "/", "configure": "", "write": "", "read": "^s$"}
    found = imported(
        tmp_path, permissions=[read], exchanges=[exchange("x"), exchange("lone")],
        queues=[queue("s", queue_type=kind, max_age="1M", auto_delete=1), queue("q")],
        bindings=[binding("x", "s"), binding("x", "q"), binding("lone", "s"),
                  binding("", "s", "s")],
        policies=[policy("p", "^s$", to="all", max_length=4)],
    )  # fmt: skip
    ((verdict, text),) = lines(found, "queue s")
    assert verdict is Verdict.NONE and says in text
    assert [*found.queues] == [] and [*found.addresses] == ["x"]
    assert [*found.addresses["x"]["subscriptions"]] == ["q"]  # type: ignore[call-overload]
    assert found.acls == {}, "a right to read one queue is no right to read them all"
    for about in ("queue s, max-age = 1M", f"queue s, queue-type = {kind}"):
        assert [verdict for verdict, _ in lines(found, about)] == [Verdict.NONE], about
    for source in ("x", "lone", ""):
        key = "s" if not source else ""
        ((verdict, text),) = lines(found, f"binding {source} -> s, routing_key = {key}")
        assert verdict is Verdict.NONE and "queue s is not imported" in text
    ((verdict, text),) = lines(found, "exchange lone")
    assert verdict is Verdict.NONE and "it feeds no queue here" in text
    write(found, tmp_path / "to")


@pytest.mark.parametrize(("kind", "attempts"), [
    ("rabbit_quorum_queue", 21), ("quorum", 21), ("rabbit_classic_queue", -1), ("", -1),
    ("undefined", -1),
])  # fmt: skip
def test_a_type_may_have_its_long_name(kind: str, attempts: int, tmp_path: Path) -> None:
    """As in rabbit_queue_type, discover."""
    found = imported(tmp_path, queues=[queue("q", queue_type=kind)])
    assert found.queues["q"] == {"max_attempts": attempts}


def test_a_quorum_queue_with_max_priority_is_said_to_have_none(tmp_path: Path) -> None:
    given = {**QUORUM, "max_priority": 9, "max_length_bytes": 5, "max_length": 5}
    found = imported(tmp_path, queues=[queue("q", **given)])
    ((verdict, text),) = lines(found, "queue q, max-priority = 9")
    assert verdict is Verdict.TAKEN and text == "a quorum queue does not have it"
    assert not lines(found, "queue q, max-length-bytes with max-priority")
    assert found.queues["q"].get("evict") is None


@pytest.mark.parametrize(("version", "kind", "ignores", "prefers"), [
    ("3.13.1", "quorum", True, False), ("4.0.1", "quorum", False, True),
    ("4.0.1", "classic", True, False), ("3.13.1", "classic", True, False),
])  # fmt: skip
def test_since_version_4_quorum_queues_have_priorities(
    version: str, kind: str, ignores: bool, prefers: bool, tmp_path: Path
) -> None:
    """rabbit_fifo_q: a message of a priority above 4 is high."""
    found = imported(tmp_path, rabbit_version=version, queues=[queue("q", queue_type=kind)])
    assert bool(lines(found, "queues without max-priority")) is ignores
    assert bool(lines(found, "quorum queues, priority of messages")) is prefers


# --- several entries of one name, and of one priority --------------------------------------------


def test_of_two_queues_of_one_name_the_first_counts(tmp_path: Path) -> None:
    """rabbit_definitions, add_queue_int: what exists stays as it is."""
    found = imported(
        tmp_path,
        queues=[queue("q", max_length=3), queue("q", max_length=9, **QUORUM), queue("q", "lab")],
    )
    assert found.queues["q"] == {"ring_size": 3, "max_attempts": -1}
    said = lines(found, "queue q")
    assert [verdict for verdict, _ in said].count(Verdict.NONE) == 1
    assert any("named a second time: RabbitMQ keeps the first" in text for _, text in said)
    assert not lines(found, "queue q, max-length = 9")


def test_of_two_exchanges_of_one_name_the_first_counts(tmp_path: Path) -> None:
    found = imported(
        tmp_path, queues=[queue("q")], bindings=[binding("x", "q", "k")],
        exchanges=[exchange("x", "direct"), exchange("x", "fanout", internal=True)],
    )  # fmt: skip
    members: Any = found.addresses["x"]["subscriptions"]
    assert members["q"]["selector"] == "routing_key = 'k'"
    assert sorted(verdict for verdict, _ in lines(found, "exchange x")) == sorted(
        [Verdict.TAKEN, Verdict.NONE]
    )
    assert not lines(found, "exchange x, internal")


@pytest.mark.parametrize("kind", ["policy", "operator policy"])
def test_of_policies_of_one_priority_rabbitmq_does_not_say_which_applies(
    kind: str, tmp_path: Path
) -> None:
    """rabbit_policy sorts them by priority alone, from a table without an order."""
    two = [policy(name, "^q", max_length=size) for name, size in (("one", 3), ("two", 4))]
    section = {"policies": two}
    if kind == "operator policy":
        section = {"parameters": [{**operator(), "name": each["name"], "value": each}
                                  for each in two]}  # fmt: skip
    found = imported(tmp_path, queues=[queue("q"), queue("q2")], **section)
    assert found.queues["q"]["ring_size"] == 3
    said = [each for each in found.findings if each.setting.startswith(f"{kind} two")]
    assert [each.verdict for each in said] == [Verdict.NONE]
    assert f"{kind} one has the same priority" in said[0].text and "queue q" in said[0].text
    assert not found.settings


def test_a_policy_of_one_priority_may_apply_to_another_queue(tmp_path: Path) -> None:
    found = imported(
        tmp_path, queues=[queue("q"), queue("r")],
        policies=[policy("one", "^q$", max_length=3), policy("two", ".", max_length=4)],
    )  # fmt: skip
    assert (found.queues["q"]["ring_size"], found.queues["r"]["ring_size"]) == (3, 4)
    said = [each for each in found.findings if each.setting.startswith("policy two")]
    assert len(said) == 1 and "same priority" in said[0].text


@pytest.mark.parametrize("to", ["exchanges", "streams"])
def test_a_policy_for_exchanges_or_streams_says_so(to: str, tmp_path: Path) -> None:
    found = imported(
        tmp_path, queues=[queue("q")],
        policies=[policy("p", "^q$", to=to, federation_upstream="a")],
    )  # fmt: skip
    said = [each for each in found.findings if each.setting.startswith("policy p")]
    assert [each.verdict for each in said] == [Verdict.NONE]
    assert f"it is for {to}" in said[0].text


# --- bindings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [
    {"x-match": "any"}, {"x-match": "any", "x-h": "1"}, {"x-match": "any-with-x"},
])  # fmt: skip
def test_a_binding_of_any_of_no_headers_matches_nothing(
    arguments: dict[str, Any], tmp_path: Path
) -> None:
    """rabbit_exchange_type_headers, match_any."""
    bound = {**binding("x", "q"), "arguments": arguments}
    definitions = {"queues": [queue("q")], "exchanges": [exchange("x", "headers")]}
    found = imported(tmp_path, bindings=[bound], **definitions)
    ((verdict, text),) = lines(found, "binding x -> q, routing_key = ")
    assert verdict is Verdict.TAKEN and "no message matches" in text
    assert [*found.queues] == ["q"] and not found.addresses
    other = {**binding("x", "q"), "arguments": {"h": "1"}}
    found = imported(tmp_path, bindings=[bound, other], **definitions)
    members: Any = found.addresses["x"]["subscriptions"]
    assert members["q"]["selector"] == "h = '1'"


def test_a_header_without_a_value_has_to_be_there(tmp_path: Path) -> None:
    bound = {**binding("x", "q"), "arguments": {"h": None, "k": "1"}}
    found = imported(
        tmp_path, queues=[queue("q")], exchanges=[exchange("x", "headers")], bindings=[bound]
    )
    members: Any = found.addresses["x"]["subscriptions"]
    assert members["q"]["selector"] == "h IS NOT NULL AND k = '1'"


def test_the_lines_of_a_queue_that_gets_every_message_say_so(tmp_path: Path) -> None:
    found = imported(
        tmp_path, queues=[queue("q"), queue("r")], exchanges=[exchange("x", "topic")],
        bindings=[binding("x", "q", "a"), binding("x", "r", "a"), binding("x", "q", "*.#")],
    )  # fmt: skip
    members: Any = found.addresses["x"]["subscriptions"]
    assert members["q"]["selector"] == "" and members["r"]["selector"] == "routing_key = 'a'"
    said = {each.setting: each.text for each in found.findings if " -> q" in each.setting}
    assert len(said) == 2 and all(
        "so the queue gets every message" in each for each in said.values()
    )


def test_what_moved_messages_between_brokers_is_said_to_be_missing(tmp_path: Path) -> None:
    found = imported(
        tmp_path, queues=[queue("q")], policies=[policy("p", "^q$", federation_upstream="u")],
        parameters=[{"component": kind, "name": "n", "vhost": "/", "value": {}}
                    for kind in ("shovel", "federation-upstream")],
    )  # fmt: skip
    for about in ("parameter shovel n", "parameter federation-upstream n",
                  "queue q, policy p, federation-upstream = u"):  # fmt: skip
        ((verdict, text),) = lines(found, about)
        assert verdict is Verdict.NONE and "a program has to do that" in text


def test_the_selector_of_many_bindings_is_checked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was built and checked with each binding: 10,000 took a quarter of an hour."""
    checked: list[str] = []
    monkeypatch.setattr(rabbitmq_bindings, "check_selector", checked.append)
    bindings = [binding("amq.direct", "q", f"user.{number}") for number in range(50)]
    found = imported(tmp_path, queues=[queue("q")], bindings=bindings)
    assert len(checked) == 1 and "user.49" in checked[0]
    subscriptions: Any = found.addresses["amq.direct"]["subscriptions"]
    assert subscriptions["q"]["selector"] == checked[0]
