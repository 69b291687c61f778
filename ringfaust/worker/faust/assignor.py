"""Faust's assignor, with shares that depend on who has the state (R127).

A member says with each request to join what it has on its disk, and the leader answers with the
partitions that it serves and those of which it is the standby. Both are part of what Faust's own
assignor writes there, so a member with an older version understands it.

A member says, too, which feature levels it supports and which one it knows to be in use. One that
is too old for that gets nothing, so that it does not shut out whose state it cannot read (R129).
"""

from __future__ import annotations

import json
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Protocol, cast

from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from faust.assignor.partition_assignor import PartitionAssignor

from ringfaust import __version__
from ringfaust.core import levels
from ringfaust.worker.faust.shares import Held, Member, share_out

log = logging.getLogger(__name__)

_OURS = "ringfaust"


class Holdings(Protocol):
    """What a worker tells the leader of its group. Any thread."""

    @property
    def topics(self) -> Set[str]:
        """All topics that it takes part with."""

    @property
    def stored_topics(self) -> Set[str]:
        """The topics whose partitions have a store, one for a partition of all of them."""

    @property
    def home_topic(self) -> str:
        """The one of these that all members have: who has its partition has those of the others."""

    @property
    def takes_standbys(self) -> bool:
        """Whether it follows partitions of others."""

    @property
    def level(self) -> int:
        """The highest feature level that it knows to be in use (R129)."""

    def held(self) -> Mapping[int, Held]:
        """What it has on its disk, by partition."""


class GroupApp(Protocol):
    """The part of `BatchApp` that the assignor uses."""

    protocol: str
    holdings: Holdings | None


class Assignor(PartitionAssignor):
    """Shares out partitions under a name that all members of the group must have (R113)."""

    @property
    def name(self) -> str:
        """The name of the assignment protocol."""
        return cast(GroupApp, self.app).protocol

    @property
    def _holdings(self) -> Holdings | None:
        return cast(GroupApp, self.app).holdings

    @property
    def _stored(self) -> Set[str]:
        return self._holdings.stored_topics if self._holdings else frozenset()

    @property
    def _home(self) -> str:
        return self._holdings.home_topic if self._holdings else ""

    @property
    def standbys(self) -> frozenset[int]:
        """The partitions of which this worker is the standby."""
        return frozenset(
            tp.partition for tp in self.assigned_standbys() if tp.topic in self._stored
        )

    def metadata(self, topics: set[str]) -> ConsumerProtocolMemberMetadata:
        """What this worker says when it joins the group."""
        holdings = self._holdings
        plain = super().metadata(topics if holdings is None else topics & holdings.topics)
        said = json.loads(plain.user_data)
        if holdings is not None:
            held = {str(number): list(each) for number, each in holdings.held().items()}
            said[_OURS] = {
                "standby": int(holdings.takes_standbys), "has": held, "version": __version__,
                "level": holdings.level, "newest_level": levels.NEWEST,
            }  # fmt: skip
        return ConsumerProtocolMemberMetadata(
            plain.version, plain.subscription, json.dumps(said).encode()
        )

    def assign(
        self, cluster: Any, member_metadata: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Share out all partitions. Called on the leader of the group.

        While routes change (R128), not all members have the same topics. Then a member has the
        partitions of a topic with a store for which it has those of the home topic, and no others.
        """
        said = {name: json.loads(each.user_data) for name, each in member_metadata.items()}
        found: dict[str, _Shares] = {name: _Shares() for name in said}
        totals: Counter[str] = Counter()
        home = self._home
        able = {name: member_metadata[name] for name in _new_enough(said)}
        groups = _groups(able, cluster.partitions_for_topic, self._stored, home)
        for (partitions, is_stored, members), topics in sorted(groups.items()):
            told_by = [home] if home in topics else topics
            given, followed = share_out(
                partitions,
                {name: _member(said[name], told_by, is_stored=is_stored) for name in members},
                totals,
            )
            totals.update(given.values())
            for topic in topics:
                has = {name for name in members if topic in member_metadata[name].subscription}
                for number, name in given.items():
                    if name in has:
                        found[name].actives.setdefault(topic, []).append(number)
                for number, name in followed.items():
                    if name in has:
                        found[name].standbys.setdefault(topic, []).append(number)
        return {
            name: self._answer(shares, said[name].get("url", "")) for name, shares in found.items()
        }

    def _answer(self, shares: _Shares, url: str) -> ConsumerProtocolMemberAssignment:
        row = {
            "assignment": {"actives": shares.actives, "standbys": shares.standbys}, "url": url,
            "changelog_distribution": {}, "external_topic_distribution": {}, "topic_groups": {},
        }  # fmt: skip
        raw = zlib.compress(json.dumps(row).encode())
        return ConsumerProtocolMemberAssignment(self.version, sorted(shares.actives.items()), raw)


def _new_enough(said: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The members that support the feature level in use (R129), or all if none does.

    Version 0.2.0 says nothing of levels, and supports the first one.
    """
    ours = {name: each.get(_OURS, {}) for name, each in said.items()}
    level = max(each.get("level", 1) for each in ours.values())
    able = [name for name, each in ours.items() if each.get("newest_level", 1) >= level]
    for name in ours.keys() - able:
        log.error(
            "worker %s (ringfaust %s) is too old and gets no partitions: feature level %d is in "
            "use, and it supports levels up to %d. `ringfaust upgrade status` lists all workers",
            name, ours[name].get("version", "0.2.0 or older"), level,
            ours[name].get("newest_level", 1),
        )  # fmt: skip
    return able or [*said]


class _Shares:
    """What a member gets, by topic."""

    def __init__(self) -> None:
        self.actives: dict[str, list[int]] = {}
        self.standbys: dict[str, list[int]] = {}


_Group = tuple[int, bool, tuple[str, ...]]
"""What topics that are shared out together have in common: the number of partitions, whether they
have a store, and the members."""


def _groups(
    members: Mapping[str, ConsumerProtocolMemberMetadata],
    partitions_of: Callable[[str], Set[int] | None],
    stored: Set[str],
    home: str,
) -> dict[_Group, list[str]]:
    """The topics that exist, by what they have in common.

    Those with a store, and as many partitions as `home`, belong to all who have that one.
    """
    subscribers: dict[str, list[str]] = {}
    for name, each in members.items():
        for topic in each.subscription:
            subscribers.setdefault(topic, []).append(name)
    groups: dict[_Group, list[str]] = {}
    counts = {topic: len(partitions_of(topic) or ()) for topic in {*subscribers, home}}
    for topic in sorted(subscribers):
        if count := counts[topic]:
            goes_with_home = topic in stored and count == counts[home] and home in subscribers
            names = subscribers[home if goes_with_home else topic]
            group = (count, topic in stored, tuple(sorted(names)))
            groups.setdefault(group, []).append(topic)
    return groups


def _member(said: Mapping[str, Any], topics: Sequence[str], *, is_stored: bool) -> Member:
    """A member, from what it has said; `topics`: those that are shared out together."""
    before, ours = said.get("assignment", {}), said.get(_OURS, {})
    serves, follows = (
        frozenset(number for topic in topics for number in before.get(what, {}).get(topic, ()))
        for what in ("actives", "standbys")
    )
    if not is_stored:
        return Member(serves)
    held = {int(number): Held(*each) for number, each in ours.get("has", {}).items()}
    return Member(serves, follows, held, takes_standbys=bool(ours.get("standby")))
