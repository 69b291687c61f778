"""What an applied configuration declares is bounded, and taken up in bounded steps (R120, R128)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.patterns import Pattern
from tests.fuzz.measured import Measured
from tests.fuzz.test_bytes import MOST_BYTES, kinds, largest

SNAIL = "\U0001f40c"


def partition(**addresses: Any) -> Measured:
    return Measured(Catalog({"#": {}}, {}, addresses))


def apply(it: Measured, revision: int = 1, **configuration: Any) -> dict[str, Any]:
    it.say("apply", revision=revision, configuration=configuration, reply="r")
    return it.replies[-1]


def declaring(names: Iterable[str]) -> dict[str, Any]:
    return {"subscriptions": {name: {} for name in names}}


def test_an_address_with_too_many_bytes_of_names_is_not_applied() -> None:
    """800 of them were a row of 2.3 MB, which no topic accepts."""
    it = partition()
    name = SNAIL * 240
    refused = apply(it, addresses={name: declaring(f"s{number}" for number in range(800))})
    assert (refused["ok"], refused["reason"]) == (False, "limit")
    assert "800 subscriptions" in refused["text"]
    assert f"{limits.SUBSCRIPTIONS_BYTES:,} bytes of their names" in refused["text"]
    assert "applied" not in kinds(it)


def test_an_address_of_a_pattern_that_is_too_large_refuses_what_uses_it() -> None:
    """Only the name of the address says how long the names of its queues are."""
    it = partition()
    assert apply(it, addresses={"#": declaring(f"s{number}" for number in range(800))})["ok"]
    name = SNAIL * 240
    it.take([it.message(name, b"")])
    it.say("attach", queue=f"{name}::s1", consumer="me", credit=1, reply="r")
    refused = it.replies[-1]
    assert (refused["ok"], refused["reason"]) == (False, "limit")
    assert f"{limits.SUBSCRIPTIONS_BYTES:,} bytes of their names" in refused["text"]
    reasons = [event["reason"] for event in it.events if event["event"] == "refused"]
    assert reasons == ["limit", "limit"]
    assert "added" not in kinds(it)
    assert max(cost.largest_row for cost in it.costs) < 900_000
    it.take([it.message("short", b"")])
    assert kinds(it).count("added") == 800


def test_several_configurations_declare_no_more_than_an_address_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SUBSCRIPTIONS", 3)
    it = partition()
    apply(it, 1, addresses={"p": declaring(["a", "b"])})
    it.take([it.message("p", b"")])
    apply(it, 2, addresses={"p": declaring(["c", "d"])})
    it.take([it.message("p", b""), it.message("p::c", b"")])
    it.say("subscribe", address="p", consumer="me", credit=1, reply="r")
    it.say("create_queue", queue="p::e", reply="r")
    assert [reply.get("reason") for reply in it.replies[-2:]] == ["limit", "limit"]
    text = it.replies[-1]["text"]
    assert "has 2 queues, and 2 more are declared" in text and "at most 3 queues" in text
    assert kinds(it).count("added") == 2
    assert kinds(it).count("refused") == 4
    it.say("delete_queue", queue="p::a", reply="r")
    assert it.replies[-1]["ok"]
    it.take([it.message("p", b"")])
    assert kinds(it).count("added") == 5


def test_a_configuration_with_too_many_patterns_is_not_applied() -> None:
    it = partition()
    patterns = {f"a{number}.#": {} for number in range(limits.PATTERNS // 2)}
    assert apply(it, 1, queues=patterns, settings=patterns)["ok"]
    refused = apply(it, 2, queues={**patterns, "*": {}}, settings=patterns)
    assert (refused["ok"], refused["reason"]) == (False, "limit")
    assert "1,001 names with * or #" in refused["text"] and "at most 1,000" in refused["text"]


def test_names_without_wildcards_are_compared_with_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """18,000 names were compared with each of 500 queues: 3.3 s."""
    it = partition()
    it.take([it.message(f"q{number}", b"") for number in range(50)])
    compared = []
    matches = Pattern.matches
    monkeypatch.setattr(
        Pattern, "matches", lambda self, words: compared.append(self) or matches(self, words)
    )
    assert apply(it, queues={"#": {}, **{f"q{number}": {} for number in range(1_000)}})["ok"]
    it.take([it.message("new", b"")])
    assert 50 <= len(compared) < 200


def test_a_queue_that_many_patterns_are_compared_with_weighs_something() -> None:
    it = partition()
    patterns = {f"a{number}.#": {} for number in range(900)}
    name = ".".join(["w"] * 100)
    it.take([it.message(f"{name}.{number}", b"") for number in range(100)])
    it.costs.clear()
    assert apply(it, queues={"#": {}, **patterns})["ok"]
    assert len(it.costs) > 2
    it.costs.clear()
    it.take([it.message(f"{name}.new{number}", b"") for number in range(100)])
    assert len(it.costs) > 2


def test_many_queues_that_take_up_a_long_setting() -> None:
    """2,000 queues wrote it into a row and an event each, in one transaction: 193 MB."""
    it = partition()
    it.take([it.message(f"q{number}", b"") for number in range(1_000)])
    it.costs.clear()
    selector = f"x IS NULL OR x = '{SNAIL * 4_000}'"
    assert apply(it, queues={"#": {"selector": selector}})["ok"]
    assert kinds(it).count("configured") == 1_000
    assert largest(it) < MOST_BYTES
    assert len(it.costs) > 3


def test_an_address_compares_its_declared_queues_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each send compared each of 4,000 with a list, and 4,000 tables were built: 2.5 s."""
    it = partition()
    apply(it, addresses={"p": declaring(f"s{number}" for number in range(50))})
    catalog = it.processor.state.catalog
    asked = []
    subscriptions = Catalog.subscriptions
    monkeypatch.setattr(
        Catalog, "subscriptions", lambda self, name: asked.append(name) or subscriptions(self, name)
    )
    it.take([it.message("p", b"")])
    assert kinds(it).count("added") == 50
    asked.clear()
    it.take([it.message("p", b"") for _ in range(10)])
    assert asked == []
    assert subscriptions(catalog, "p") is subscriptions(catalog, "p")


class Restarted(Measured):
    """Starts again in the middle of the first command that is unfinished."""

    stages = 0
    has_started = False

    def _go_on(self, cause: str) -> None:
        unfinished = self.processor.state.unfinished
        if unfinished is not None and not self.has_started:
            self.stages, self.has_started = len(unfinished.stages), True
            self.reopen()
        super()._go_on(cause)


def test_declared_queues_that_are_filled_are_one_stage() -> None:
    """There was one stage for each of them in the row of the unfinished command (R120)."""
    ring = {"retroactive_count": 1_000}
    it = Restarted(Catalog({}, {}, {"p": ring}))
    it.say("raise_level", level=2)
    it.take([it.message("p", b"") for _ in range(1_000)])
    apply(it, addresses={"p": {**ring, **declaring(f"s{number}" for number in range(20))}})
    it.take([it.message("p", b"")])
    assert it.has_started
    assert it.stages == 2, "those that are filled, and the send"
    assert kinds(it).count("added") == 20 * 1_001


def test_addresses_are_compared_with_a_new_configuration_when_they_are_used() -> None:
    """All that were decoded were compared at once, each with as many as 1,000 patterns."""
    it = partition(**{"#": {}})
    it.take([it.message(f"a{number}", b"") for number in range(100)])
    state = it.processor.state
    before = dict(state.addresses)
    assert len(before) == 100
    apply(it, addresses={"#": {**declaring(["s"])}})
    assert not {*map(id, state.addresses.values())} & {*map(id, before.values())}
    it.take([it.message("a7", b"")])
    assert kinds(it).count("added") == 1


def test_declared_queues_with_a_long_selector_do_not_fit_into_a_transaction() -> None:
    """5,000 of them wrote rows of 240 MB in one transaction."""
    it = partition()
    selector = f"x IS NULL OR x = '{SNAIL * 4_000}'"
    many = declaring(f"s{number}" for number in range(500))
    apply(it, settings={"#": {"selector": selector}}, addresses={"p": many})
    it.take([it.message("p", b"")])
    (refused,) = [event for event in it.events if event["event"] == "refused"]
    assert refused["reason"] == "limit"
    it.say("pause", queue="p::s1", what="pulling", reply="r")
    assert "bytes at once, with their settings" in it.replies[-1]["text"]
    assert largest(it) < MOST_BYTES
    apply(it, 2, addresses={"p": many})
    it.take([it.message("p", b"")])
    assert kinds(it).count("added") == 500


def many_patterns() -> dict[str, Any]:
    return {f"a{number}.#": {} for number in range(900)}


def test_queues_that_are_created_are_compared_with_many_patterns() -> None:
    """500 in one batch took 7.9 s."""
    it = partition()
    apply(it, settings=many_patterns(), addresses={".".join(["w"] * 60): {}})
    it.costs.clear()
    address = ".".join(["w"] * 60)
    names = [f"{address}::s{number}" for number in range(100)]
    it.take([it.command("create_queue", queue=name, reply="r") for name in names])
    assert all(reply["ok"] for reply in it.replies)
    assert len(it.costs) > 3


def test_a_list_of_queues_ends_where_too_many_names_were_compared() -> None:
    """A list of 1,000 queues took 7.3 s after a restart."""
    it = partition()
    names = [".".join(["w"] * 100 + [f"q{number}"]) for number in range(100)]
    it.take([it.message(name, b"") for name in names])
    apply(it, queues={"#": {}}, settings=many_patterns())
    it.reopen()
    found, after = [], ""
    pages = 0
    while after is not None:
        it.say("list_queues", pattern="#", limit=500, after=after, reply="r")
        answer = it.replies[-1]["answer"]
        found += [entry["queue"] for entry in answer["queues"]]
        after = answer["next"]
        pages += 1
    assert sorted(found) == sorted(names)
    assert pages > 1


@pytest.mark.parametrize("is_applied", [False, True])
def test_the_queues_of_an_address_are_not_decoded_to_see_whether_one_pauses_it(
    is_applied: bool,
) -> None:
    """1,200 with 120 deliveries each took 1.1 s and 86 MB before anything was counted."""
    blocking = {"when_full": "block", "max_messages": 1}
    addresses = {"p": {"subscriptions": {"a": {}, "b": blocking, "c": {}}}}
    it = Measured(Catalog({}, {}, {} if is_applied else addresses))
    if is_applied:
        apply(it, addresses=addresses)
    it.take([it.message("p", b"")])
    it.reopen()
    it.take([it.message("p", b"")])
    assert it.processor.paused_topics == {"in": "p::b"}
    assert list(it.processor.state.queues) == ["p::b"]
    it.say("pause", queue="p::c", what="pulling", reply="r")
    it.say("purge", queue="p::b", reply="r")
    it.reopen()
    it.take([it.message("p", b"")])
    assert it.processor.paused_topics == {"in": "p::c"}
    assert "p::a" not in it.processor.state.queues
