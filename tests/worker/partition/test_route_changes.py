"""R113: a change of routes, hop or partitions does not put a queue into two partitions."""

from __future__ import annotations

import pytest

from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.route_changes import MovedQueue, RouteChanges
from ringfaust.protocol.stored_rows import FEEDS_KEY, Feed, Feeds, read_feeds, write_feeds
from ringfaust.worker.partition.route_changes import QueuesMoved

DIRECT, REPARTITIONED = Feed("in", "key.{key}", False), Feed("in", "key.{key}", True)
BY_KEY, BY_NAME = partition_of("A", 4), partition_of("key.A", 4)


def changes(before: Feed | None, now: Feed, partitions: int = 4) -> RouteChanges:
    return RouteChanges(Feeds(4, (before,)) if before else None, Feeds(partitions, (now,)))


def test_the_partitions_differ() -> None:
    assert BY_KEY != BY_NAME


@pytest.mark.parametrize(
    ("before", "now", "old", "new"),
    [(DIRECT, REPARTITIONED, BY_KEY, BY_NAME), (REPARTITIONED, DIRECT, BY_NAME, BY_KEY)],
    ids=["to the hop", "from the hop"],
)
def test_a_change_of_hop_moves_a_queue(before: Feed, now: Feed, old: int, new: int) -> None:
    found = changes(before, now)
    assert found.has_changed
    assert found.elsewhere("key.A", old) == (True, new)
    assert found.elsewhere("key.A", new) == (False, new)
    assert found.elsewhere("other", old) == (False, old), "no route leads there"


def test_the_same_routes_move_nothing_wherever_a_queue_is() -> None:
    """Producers may have a partitioner of their own."""
    found = changes(DIRECT, DIRECT)
    assert not found.has_changed
    assert not changes(None, REPARTITIONED).has_changed, "a new partition"


def test_another_number_of_partitions_moves_queues() -> None:
    moved = {
        name
        for name in "ABCDEFGH"
        if changes(DIRECT, DIRECT, 5).elsewhere(f"key.{name}", partition_of(name, 4))[0]
    }
    assert moved == {name for name in "ABCDEFGH" if partition_of(name, 4) != partition_of(name, 5)}
    assert moved


def test_a_topic_that_leaves_the_hop_may_bring_a_queue_anywhere() -> None:
    before, now = Feed("in", "{header:to}", True), Feed("in", "{header:to}", False)
    assert changes(before, now).elsewhere("q", 0) == (True, None)
    assert changes(now, now).elsewhere("q", 0) == (False, 0)


def test_the_queues_of_an_address_live_with_it() -> None:
    before, now = Feed("in", "prices", False), Feed("in", "prices", True)
    partition = partition_of("prices", 4)
    assert changes(before, now).elsewhere("prices::all", partition) == (False, partition)
    assert changes(before, now).elsewhere("prices::all", partition + 1) == (True, partition)


def test_the_refusal_names_queues_and_says_what_to_do() -> None:
    text = str(QueuesMoved(1, [MovedQueue(f"q{number}", 1_000, 2) for number in range(5)]))
    assert "partition 1: routes, hop or partitions were changed" in text
    assert "'q0' (1,000 messages, to partition 2)" in text
    assert "and 2 more" in text
    assert "Restore the earlier routes" in text


def test_the_stored_routes_have_these_bytes() -> None:
    feeds = Feeds(4, (DIRECT,))
    raw = b'\x81[4,[["in","key.{key}",false]]]'
    assert (FEEDS_KEY, write_feeds(feeds), read_feeds(raw)) == (b"\0feeds", raw, feeds)
    assert read_feeds(None) is None
