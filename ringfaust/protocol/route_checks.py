"""What must hold of the routes of a `queues.yaml`, whether it comes from a file or is applied."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple, Self

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

    def may_lead_to(self, declared: Catalog, patterns: Iterable[Pattern]) -> bool:
        """Whether a record of this route could name a queue that is declared.

        If the name varies, this compares only the whole words before the first placeholder.

        Args:
            declared: the names and patterns.
            patterns: each of them, compiled.
        """
        template = self.name_template
        if not template.parts:
            return declared.declares(template.text)
        words = template.texts[0].split(".")[:-1]
        return any(each.may_go_on(words) for each in patterns)


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
    read = [_Read.of(route, partitions) for route in routes]
    for (_, one), (index, other) in combinations(enumerate(read if partitions > 1 else ()), 2):
        if _conflict(one, other):
            yield RouteFault(
                f"routes.{index}.hop",
                f"{one.route.topic} ({one.route.queue}) and {other.route.topic} "
                f"({other.route.queue}) can name the same "
                "queue but would send its records to different partitions: set hop: always on "
                "both, or give their queues different names",
            )


class _Read(NamedTuple):
    """A route that is read once, and compared with all others."""

    route: CheckedRoute
    template: RouteTemplate
    hops: bool

    @classmethod
    def of(cls, route: CheckedRoute, partitions: int) -> Self:
        """Read one."""
        template = route.name_template
        return cls(route, template, needs_hop(template, route.hop, partitions))


def _conflict(one: _Read, other: _Read) -> bool:
    """Return whether the two routes could send records of one queue to different partitions.

    Two routes through the hop agree, because the queue's name determines the partition. Two direct
    routes agree if their templates are equal, because then equal names come from equal keys.
    `hop: never` is trusted.
    """
    if "never" in (one.route.hop, other.route.hop) or (one.hops and other.hops):
        return False
    is_same = one.hops == other.hops and one.template.text == other.template.text
    return not is_same and _may_agree(one.template, other.template)


def _may_agree(mine: RouteTemplate, theirs: RouteTemplate) -> bool:
    """Return whether both could produce the same name.

    If both names vary, this compares only how they begin and end.
    """
    if not mine.parts:
        return theirs.may_name(mine.text)
    if not theirs.parts:
        return mine.may_name(theirs.text)
    first, other_first, last, other_last = (
        mine.texts[0], theirs.texts[0], mine.texts[-1], theirs.texts[-1]
    )  # fmt: skip
    heads = first.startswith(other_first) or other_first.startswith(first)
    return heads and (last.endswith(other_last) or other_last.endswith(last))


def shown(text: str) -> str:
    """A text as an error shows it: shortened if it is long."""
    found = repr(text)
    return found if len(found) <= _SHOWN_CHARS else found[:_SHOWN_CHARS] + "…"
