"""Routes: which queue a producer's record goes to, and whether it needs the hop topic.

A queue lives in one partition. This module decides whether the producer's own partitioning already
keeps a queue in one partition. `protocol.routes` reads templates.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, field_validator

from ringfaust.config.documents import ConfigModel, refuse, shown
from ringfaust.core.catalog import Catalog
from ringfaust.core.patterns import Pattern
from ringfaust.errors import suggestion
from ringfaust.protocol.route_changes import needs_hop
from ringfaust.protocol.routes import RouteTemplate

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BRACES = re.compile(r"\{[^{}]*\}")
_PLACEHOLDERS = ("{topic}", "{key}", "{header:NAME}")


def _topic_name(name: str) -> str:
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise refuse(
            f"{shown(name)} is not a valid topic name: Kafka allows up to 249 letters, digits and "
            ". _ -"
        )
    return name


class RouteConfig(ConfigModel):
    """One of `routes`: which queue the records of a producer's topic go to."""

    topic: Annotated[str, AfterValidator(_topic_name)]
    """Name of a producer's topic. Each topic has one route."""
    queue: str
    """Template of the queue's name: text, `{topic}`, `{key}`, `{header:NAME}`."""
    hop: Literal["auto", "always", "never"] = "auto"
    """Whether records first go through the hop topic, which is partitioned by queue."""

    @field_validator("queue")
    @classmethod
    def _template(cls, template: str) -> str:
        if not template:
            raise refuse("is empty but must name a queue")
        texts = RouteTemplate(template).texts
        for unknown in (found for text in texts for found in _BRACES.findall(text)):
            known = suggestion(unknown, _PLACEHOLDERS)
            raise refuse(f"{shown(unknown)} is not a placeholder; {known}")
        if any(set("{}\0") & set(text) for text in texts):
            raise refuse(f"{shown(template)} contains an unmatched brace or a NUL")
        return template

    def needs_hop(self, partitions: int) -> bool:
        """Return whether the topic's own partitioning would split a queue over partitions.

        Args:
            partitions: number of partitions of the application's topics, and of each topic that is
                read directly.
        """
        return needs_hop(self.name_template, self.hop, partitions)

    def may_lead_to(self, pattern: str) -> bool:
        """Return whether a record of this route could name a queue that the pattern declares.

        If the name varies, this compares only the whole words before the first placeholder.
        """
        template = self.name_template
        if not template.parts:
            return Catalog({pattern: {}}, {}).declares(template.text)
        words = template.texts[0].split(".")[:-1]
        return Pattern(pattern).may_go_on(words)

    @property
    def name_template(self) -> RouteTemplate:
        """The queue's template with `{topic}` filled in."""
        return RouteTemplate(self.queue.replace("{topic}", self.topic))


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


def conflict(one: RouteConfig, other: RouteConfig, partitions: int) -> bool:
    """Return whether the two routes could send records of one queue to different partitions.

    Two routes through the hop agree, because the queue's name determines the partition. Two direct
    routes agree if their templates are equal, because then equal names come from equal keys.
    `hop: never` is trusted.
    """
    if partitions == 1 or "never" in (one.hop, other.hop) or not _may_agree(one, other):
        return False
    hops = one.needs_hop(partitions), other.needs_hop(partitions)
    return not all(hops) and (any(hops) or one.name_template.text != other.name_template.text)


def _may_agree(one: RouteConfig, other: RouteConfig) -> bool:
    """Return whether both could produce the same name.

    If both names vary, this compares only how they begin and end.
    """
    mine, theirs = one.name_template, other.name_template
    if not mine.parts:
        return theirs.may_name(mine.text)
    if not theirs.parts:
        return mine.may_name(theirs.text)
    first, other_first, last, other_last = (
        mine.texts[0], theirs.texts[0], mine.texts[-1], theirs.texts[-1]
    )  # fmt: skip
    heads = first.startswith(other_first) or other_first.startswith(first)
    return heads and (last.endswith(other_last) or other_last.endswith(last))
