"""Routes: which queue a producer's record goes to, and whether it can go there directly.

A queue lives whole in one partition. What is decided here is whether the producer's own
partitioning keeps it so; reading a template against a record is the wire's (`wire/route.py`).
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
            f"{shown(name)} cannot be a topic's name: Kafka allows letters, digits and . _ -, "
            "up to 249 of them"
        )
    return name


class RouteConfig(ConfigModel):
    """Which queue the records of a producer's topic go to."""

    topic: Annotated[str, AfterValidator(_topic_name)]
    queue: str
    """Template of the queue's name: text, `{topic}`, `{key}`, `{header:NAME}`."""
    hop: Literal["auto", "always", "never"] = "auto"
    """Whether records first go through the internal topic that is partitioned by queue."""

    @field_validator("queue")
    @classmethod
    def _template(cls, template: str) -> str:
        if not template:
            raise refuse("is empty, but has to name a queue")
        for name in _PLACEHOLDER.findall(template):
            if name not in ("topic", "key") and not re.fullmatch("header:.+", name):
                known = suggestion(f"{{{name}}}", _PLACEHOLDERS)
                raise refuse(f"{shown(f'{{{name}}}')} stands for nothing; {known}")
        if set("{}\0") & set(_PLACEHOLDER.sub("", template)):
            raise refuse(f"{shown(template)} has a brace without its other half, or a NUL")
        return template

    def needs_hop(self, partitions: int) -> bool:
        """Would the topic's own partitioning spread a queue over several partitions?

        `auto` takes no hop where a queue's name holds the key and nothing else that varies, for
        then all records of a queue have one key, and so one partition already. Of several things
        that vary two different records could make one name.

        Args:
            partitions: of the application's topics, and so of each topic that is read directly.
        """
        if self.hop != "auto":
            return self.hop == "always"
        return partitions > 1 and set(_PLACEHOLDER.findall(self.name_template)) != {"key"}

    def may_lead_to(self, pattern: str) -> bool:
        """Could a record of this route name a queue that the pattern declares?

        Where the name varies, only the whole words in front of that are compared.
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


def conflict(one: RouteConfig, other: RouteConfig, partitions: int) -> bool:
    """Could the two put records of one queue into different partitions?

    Both through the hop is well: the queue's name decides. Both without is well where the same
    template makes the same key of the same name. `hop: never` is believed.
    """
    if partitions == 1 or "never" in (one.hop, other.hop) or not _may_agree(one, other):
        return False
    hops = one.needs_hop(partitions), other.needs_hop(partitions)
    return not all(hops) and (any(hops) or one.name_template != other.name_template)


def _may_agree(one: RouteConfig, other: RouteConfig) -> bool:
    """Could the two make one name? Where both vary, only their beginnings and ends are compared."""
    mine, theirs = _texts(one), _texts(other)
    if len(mine) == 1 or len(theirs) == 1:
        fixed, varying = (mine, theirs) if len(mine) == 1 else (theirs, mine)
        return re.fullmatch(".*".join(map(re.escape, varying)), fixed[0], re.DOTALL) is not None
    heads = mine[0].startswith(theirs[0]) or theirs[0].startswith(mine[0])
    return heads and (mine[-1].endswith(theirs[-1]) or theirs[-1].endswith(mine[-1]))


def _texts(route: RouteConfig) -> list[str]:
    """What stands before, between and after the placeholders."""
    return _PLACEHOLDER.split(route.name_template)[::2]
