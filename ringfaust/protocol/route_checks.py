"""What must hold of the routes of a `queues.yaml`, whether it comes from a file or is applied."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from ringfaust.core.catalog import Catalog
from ringfaust.core.patterns import Pattern
from ringfaust.errors import suggestion
from ringfaust.protocol.route_changes import needs_hop
from ringfaust.protocol.routes import RouteTemplate

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BRACES = re.compile(r"\{[^{}]*\}")
_PLACEHOLDERS = ("{topic}", "{key}", "{header:NAME}")
_SHOWN_CHARS = 80


class CheckedRoute(NamedTuple):
    """A route as `queues.yaml` has it."""

    topic: str
    queue: str
    """The template of the queue's name."""
    hop: str = "auto"

    @property
    def name_template(self) -> RouteTemplate:
        """The template with `{topic}` filled in."""
        return RouteTemplate(self.queue.replace("{topic}", self.topic))

    def may_lead_to(self, pattern: str) -> bool:
        """Whether a record of this route could name a queue that the pattern declares.

        If the name varies, this compares only the whole words before the first placeholder.
        """
        template = self.name_template
        if not template.parts:
            return Catalog({pattern: {}}, {}).declares(template.text)
        words = template.texts[0].split(".")[:-1]
        return Pattern(pattern).may_go_on(words)


class RouteFault(NamedTuple):
    """What is wrong with a route."""

    field: str
    """Its path, such as `routes.0.queue`."""
    text: str


def topic_fault(name: str) -> str:
    """What is wrong with the name of a topic; empty: nothing."""
    if _TOPIC_NAME.fullmatch(name) and name not in (".", ".."):
        return ""
    return (
        f"{shown(name)} is not a valid topic name: Kafka allows up to 249 letters, digits and . _ -"
    )


def template_fault(template: str) -> str:
    """What is wrong with the template of a queue's name; empty: nothing."""
    if not template:
        return "is empty but must name a queue"
    texts = RouteTemplate(template).texts
    for unknown in (found for text in texts for found in _BRACES.findall(text)):
        return f"{shown(unknown)} is not a placeholder; {suggestion(unknown, _PLACEHOLDERS)}"
    if any(set("{}\0") & set(text) for text in texts):
        return f"{shown(template)} contains an unmatched brace or a NUL"
    return ""


def faults_together(
    routes: Sequence[CheckedRoute], own_topics: Collection[str], partitions: int
) -> Iterator[RouteFault]:
    """Yield what is wrong with routes that are valid each by itself.

    Args:
        routes: all of them.
        own_topics: those of the application, which would feed itself its own output (R42).
        partitions: of the application's topics.
    """
    for index, route in enumerate(routes):
        if route.topic in own_topics:
            yield RouteFault(
                f"routes.{index}.topic",
                f"{route.topic} is one of this application's own topics, so the application would "
                "feed itself: read it with another application, or choose another `application` "
                "in worker.yaml",
            )
    for (_, one), (index, other) in combinations(enumerate(routes), 2):
        if conflict(one, other, partitions):
            yield RouteFault(
                f"routes.{index}.hop",
                f"{one.topic} ({one.queue}) and {other.topic} ({other.queue}) can name the same "
                "queue but would send its records to different partitions: set hop: always on "
                "both, or give their queues different names",
            )


def conflict(one: CheckedRoute, other: CheckedRoute, partitions: int) -> bool:
    """Return whether the two routes could send records of one queue to different partitions.

    Two routes through the hop agree, because the queue's name determines the partition. Two direct
    routes agree if their templates are equal, because then equal names come from equal keys.
    `hop: never` is trusted.
    """
    if partitions == 1 or "never" in (one.hop, other.hop) or not _may_agree(one, other):
        return False
    hops = _hops(one, partitions), _hops(other, partitions)
    return not all(hops) and (any(hops) or one.name_template.text != other.name_template.text)


def _may_agree(one: CheckedRoute, other: CheckedRoute) -> bool:
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


def _hops(route: CheckedRoute, partitions: int) -> bool:
    return needs_hop(route.name_template, route.hop, partitions)


def shown(text: str) -> str:
    """A text as an error shows it: shortened if it is long."""
    found = repr(text)
    return found if len(found) <= _SHOWN_CHARS else found[:_SHOWN_CHARS] + "…"
