"""Routes: which queue a producer's record goes to, and whether it needs the hop topic.

A queue lives in one partition. This module decides whether the producer's own partitioning already
keeps a queue in one partition. `protocol.routes` applies a template to a record.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, field_validator

from ringfaust.config.documents import ConfigModel, refuse, shown
from ringfaust.core.catalog import Catalog
from ringfaust.errors import suggestion

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
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
        for name in _PLACEHOLDER.findall(template):
            if name not in ("topic", "key") and not re.fullmatch("header:.+", name):
                known = suggestion(f"{{{name}}}", _PLACEHOLDERS)
                raise refuse(f"{shown(f'{{{name}}}')} is not a placeholder; {known}")
        if set("{}\0") & set(_PLACEHOLDER.sub("", template)):
            raise refuse(f"{shown(template)} contains an unmatched brace or a NUL")
        return template

    def needs_hop(self, partitions: int) -> bool:
        """Return whether the topic's own partitioning would split a queue over partitions.

        With `auto`, records skip the hop if the key is the only varying part of the queue's name:
        all records of a queue then have the same key, and so the same partition. If several parts
        vary, records with different keys can produce the same name.

        Args:
            partitions: number of partitions of the application's topics, and of each topic that is
                read directly.
        """
        if self.hop != "auto":
            return self.hop == "always"
        return partitions > 1 and set(_PLACEHOLDER.findall(self.name_template)) != {"key"}

    def may_lead_to(self, pattern: str) -> bool:
        """Return whether a record of this route could name a queue that the pattern declares.

        If the name varies, this compares only the whole words before the first placeholder.
        """
        first = _PLACEHOLDER.search(self.name_template)
        if first is None:
            return Catalog({pattern: {}}, {}).declares(self.name_template)
        words = self.name_template[: first.start()].split(".")[:-1]
        known = pattern.split(".")
        for have, word in zip(known, words, strict=False):
            if have == "#":
                return True
            if have not in ("*", word):
                return False
        return len(known) > len(words)

    @property
    def name_template(self) -> str:
        """The queue's template with `{topic}` filled in."""
        return self.queue.replace("{topic}", self.topic)


def arrival_order(route: RouteConfig, partitions: int) -> str:
    """Explain that a route orders its queue by arrival alone; empty if it does not.

    A queue with a constant name takes the records of every partition of its topic. Kafka keeps the
    order within a partition, and nobody knows that between two.

    Args:
        route: the route.
        partitions: of its topic.
    """
    if partitions == 1 or _PLACEHOLDER.search(route.name_template):
        return ""
    return (
        f"queue {route.name_template} gets the records of {partitions} partitions of topic "
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
    return not all(hops) and (any(hops) or one.name_template != other.name_template)


def _may_agree(one: RouteConfig, other: RouteConfig) -> bool:
    """Return whether both could produce the same name.

    If both names vary, this compares only how they begin and end.
    """
    mine, theirs = _texts(one), _texts(other)
    if len(mine) == 1 or len(theirs) == 1:
        fixed, varying = (mine, theirs) if len(mine) == 1 else (theirs, mine)
        return re.fullmatch(".*".join(map(re.escape, varying)), fixed[0], re.DOTALL) is not None
    heads = mine[0].startswith(theirs[0]) or theirs[0].startswith(mine[0])
    return heads and (mine[-1].endswith(theirs[-1]) or theirs[-1].endswith(mine[-1]))


def _texts(route: RouteConfig) -> list[str]:
    """Return the literal texts before, between and after the placeholders."""
    return _PLACEHOLDER.split(route.name_template)[::2]
