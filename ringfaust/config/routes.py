"""Routes: which queue a producer's record goes to, and whether it needs the hop topic.

A queue lives in one partition. This module decides whether the producer's own partitioning already
keeps a queue in one partition. `protocol.routes` reads templates.
"""

from __future__ import annotations

from typing import Annotated, Literal

from ringfaust.config.documents import ConfigModel, without
from ringfaust.protocol.route_changes import needs_hop
from ringfaust.protocol.route_checks import CheckedRoute, template_fault, topic_fault
from ringfaust.protocol.routes import RouteTemplate


class RouteConfig(ConfigModel):
    """One of `routes`: which queue the records of a producer's topic go to."""

    topic: Annotated[str, without(topic_fault)]
    """Name of a producer's topic. Each topic has one route."""
    queue: Annotated[str, without(template_fault)]
    """Template of the queue's name: text, `{topic}`, `{key}`, `{header:NAME}`."""
    hop: Literal["auto", "always", "never"] = "auto"
    """Whether records first go through the hop topic, which is partitioned by queue."""

    def needs_hop(self, partitions: int) -> bool:
        """Return whether the topic's own partitioning would split a queue over partitions.

        Args:
            partitions: number of partitions of the application's topics, and of each topic that is
                read directly.
        """
        return needs_hop(self.name_template, self.hop, partitions)

    @property
    def name_template(self) -> RouteTemplate:
        """The queue's template with `{topic}` filled in."""
        return self.checked().name_template

    def checked(self) -> CheckedRoute:
        """It, for the checks that know no files."""
        return CheckedRoute(self.topic, self.queue, self.hop)


def arrival_order(route: RouteConfig, partitions: int) -> str:
    """Explain that a route orders its queue by arrival alone; empty if it does not.

    A queue with a constant name takes the records of every partition of its topic. Kafka keeps the
    order within a partition, and nobody knows that between two.

    Args:
        route: the route.
        partitions: of its topic.
    """
    if partitions == 1 or route.name_template.parts:
        return ""
    return (
        f"queue {route.name_template.text} gets the records of {partitions} partitions of topic "
        f"{route.topic} in the order in which they arrive, which may not be the order in which "
        "they were sent. If that matters, create the topic with 1 partition, or send all records "
        "of the queue with the same key"
    )
