"""The routes of a configuration, and what changed ones would do to queues with messages (R113).

A queue lives in the partition that its records come to. With other routes, another `hop` or another
number of partitions they would come to another one, and the queue would be in two places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ringfaust.core.address import address_of
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.routes import Route, RouteTemplate
from ringfaust.protocol.stored_rows import Feed, Feeds

_SHOWN = 3


def needs_hop(template: RouteTemplate, hop: str, partitions: int) -> bool:
    """Return whether a topic's own partitioning would split a queue over partitions.

    With `auto`, records skip the hop if the key is the only varying part of the queue's name:
    all records of a queue then have the same key, and so the same partition. If several parts
    vary, records with different keys can produce the same name.

    Args:
        template: of the queue, with `{topic}` filled in.
        hop: auto, always or never.
        partitions: of the application's topics, and of each topic that is read directly.
    """
    if hop != "auto":
        return hop == "always"
    return partitions > 1 and set(template.parts) != {"key"}


def feeds_of(document: Mapping[str, Any], partitions: int) -> Feeds:
    """Return the routes of a `queues.yaml`, in an order that does not depend on the file."""
    feeds = []
    for route in document.get("routes", ()):
        queue = route["queue"].replace("{topic}", route["topic"])
        hops = needs_hop(RouteTemplate(queue), route.get("hop", "auto"), partitions)
        feeds.append(Feed(route["topic"], queue, hops))
    return Feeds(partitions, tuple(sorted(feeds)))


def routes_of(feeds: Feeds, *, repartitioned: bool) -> list[Route]:
    """Return the routes that workers read directly, or those whose records take the hop."""
    return [
        Route(each.topic, each.queue)
        for each in feeds.routes
        if each.is_repartitioned == repartitioned
    ]


def hops_changed(before: Iterable[Feeds], now: Feeds) -> list[str]:
    """Return the topics whose records begin to take the hop, or end it: others read them then.

    `before` is in order, oldest first. The last one that has the topic counts, even if later ones
    have dropped it.
    """
    hops = {each.topic: each.is_repartitioned for feeds in before for each in feeds.routes}
    return [
        each.topic
        for each in now.routes
        if hops.get(each.topic, each.is_repartitioned) != each.is_repartitioned
    ]


class MovedQueue(NamedTuple):
    """A queue whose records now come to another partition."""

    name: str
    messages: int
    partition: int | None
    """The other partition; None if the producers choose it."""

    def __str__(self) -> str:
        where = "any partition" if self.partition is None else f"partition {self.partition}"
        return f"{self.name!r} ({self.messages:,} messages, to {where})"


def moved_text(moved: list[MovedQueue]) -> str:
    """The first of these queues, as text."""
    more = f" and {len(moved) - _SHOWN:,} more" if len(moved) > _SHOWN else ""
    return ", ".join(map(str, moved[:_SHOWN])) + more


class RouteChanges:
    """Where changed routes put queues."""

    def __init__(self, before: Feeds | None, now: Feeds) -> None:
        """Compare two configurations.

        Args:
            before: what fed the queues of the partition; None if that is not known, because the
                state is new or from version 0.1.0. Then nothing counts as changed.
            now: what is configured.
        """
        before = before or now
        self._partitions = now.partitions
        known = set(before.routes) if before.partitions == now.partitions else set()
        self._was_repartitioned = {feed.topic for feed in before.routes if feed.is_repartitioned}
        self._changed = [
            (feed, RouteTemplate(feed.queue)) for feed in now.routes if feed not in known
        ]

    @property
    def has_changed(self) -> bool:
        """Whether any queue could have moved."""
        return bool(self._changed)

    def moved(
        self, queues: Callable[[str], Iterable[tuple[str, int]]], number: int
    ) -> list[MovedQueue]:
        """Return the queues of partition `number` whose records now come to another one.

        Args:
            queues: given how names begin, returns these queues, each with the number of its
                messages.
            number: the partition.
        """
        found: dict[str, MovedQueue] = {}
        for _, template in self._changed:
            for name, messages in queues(template.texts[0]):
                is_elsewhere, partition = self.elsewhere(name, number)
                if is_elsewhere:
                    found[name] = MovedQueue(name, messages, partition)
        return [found[name] for name in sorted(found)]

    def elsewhere(self, queue: str, number: int) -> tuple[bool, int | None]:
        """Whether the queue's records now come to another partition than `number`, and to which."""
        for partition in self._partitions_of(queue):
            if partition != number:
                return True, partition
        return False, number

    def _partitions_of(self, queue: str) -> Iterator[int | None]:
        """Where each changed route that can lead to the queue puts it."""
        name = address_of(queue) or queue
        for feed, template in self._changed:
            if not template.may_name(name):
                continue
            if feed.is_repartitioned:
                yield partition_of(name, self._partitions)
            elif template.parts == ["key"]:
                before, behind = template.texts
                yield partition_of(name[len(before) : len(name) - len(behind)], self._partitions)
            elif feed.topic in self._was_repartitioned:
                yield None  # where the producer's partitioner puts it
