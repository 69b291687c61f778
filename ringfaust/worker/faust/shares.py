"""Who serves a partition, and who is its standby: balanced, and by who has the state (R127)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ringfaust.protocol.status import CAUGHT_UP_RECORDS


class Held(NamedTuple):
    """What a worker has of a partition's state on its disk."""

    offset: int
    """Up to where it has the changelog; 0: it has not looked yet."""
    written_ms: int = 0
    """When the files were written last, in ms since 1970."""


@dataclass(frozen=True, slots=True)
class Member:
    """A worker, as the leader of the group knows it when it shares out partitions."""

    serves: Collection[int] = ()
    """What it was given before."""
    follows: Collection[int] = ()
    """Of which it was the standby before."""
    held: Mapping[int, Held] = field(default_factory=dict)
    takes_standbys: bool = False


Rank = tuple[bool, bool, int, int]
"""How good it is that a member gets a partition; the greatest is best."""


def share_out(
    partitions: int, members: Mapping[str, Member], has_elsewhere: Mapping[str, int]
) -> tuple[dict[int, str], dict[int, str]]:
    """The owner of each partition, and its standby if a member takes one.

    No member has two more than another. Within that, a partition goes to who is caught up with its
    changelog: its owner before, or else its standby; if nobody is, to who has most of it. The
    owner before serves it until the next one is caught up (R124), so none needs to wait for that.

    Args:
        partitions: how many there are.
        members: at least one.
        has_elsewhere: how many partitions of other topics each has been given.
    """
    newest: Counter[int] = Counter()
    for member in members.values():
        newest |= Counter({number: held.offset for number, held in member.held.items()})

    def rank(name: str, number: int, before: Collection[int]) -> Rank:
        held = members[name].held.get(number)
        if held is None:  # an older version never says what it has, but has what it serves
            return (number in before and not members[name].held, number in before, 0, 0)
        is_caught_up = held.offset > 0 and newest[number] - held.offset <= CAUGHT_UP_RECORDS
        return (is_caught_up, number in before, *held)

    names = sorted(members)
    owners = _balanced(
        {
            number: {name: rank(name, number, members[name].serves) for name in names}
            for number in range(partitions)
        },
        names,
        has_elsewhere,
    )
    takers = [name for name in names if members[name].takes_standbys]
    possible = {
        number: {
            name: rank(name, number, members[name].follows) for name in takers if name != owner
        }
        for number, owner in owners.items()
    }
    followed = {number: ranks for number, ranks in possible.items() if ranks}
    return owners, _balanced(followed, takers, Counter(owners.values()))


def _balanced(
    ranks: Mapping[int, Mapping[str, Rank]], names: Sequence[str], has_elsewhere: Mapping[str, int]
) -> dict[int, str]:
    """Give each partition to one of the members that have a rank for it, the best if possible."""
    given: dict[int, str] = {}
    counts: Counter[str] = Counter()
    for number, of_members in sorted(ranks.items()):
        best = max(of_members.values())
        name = min(
            (name for name, each in of_members.items() if each == best),
            key=lambda name: (counts[name], has_elsewhere.get(name, 0), name),
        )
        given[number] = name
        counts[name] += 1
    quotas = _quotas(len(given), names, counts, has_elsewhere)
    moves = sorted(
        (
            (rank, of_members[given[number]], number, name)
            for number, of_members in ranks.items()
            if counts[given[number]] > quotas[given[number]]
            for name, rank in of_members.items()
            if counts[name] < quotas[name]
        ),
        key=lambda move: ([-part for part in move[0]], move[1:]),
    )
    for _, _, number, name in moves:
        before = given[number]
        if counts[before] > quotas[before] and counts[name] < quotas[name]:
            given[number] = name
            counts[before] -= 1
            counts[name] += 1
    return given


def _quotas(
    partitions: int,
    names: Sequence[str],
    counts: Mapping[str, int],
    has_elsewhere: Mapping[str, int],
) -> dict[str, int]:
    """How many each may have: as equal as possible, one more for who would have most."""
    each, left = divmod(partitions, max(len(names), 1))
    first = sorted(names, key=lambda name: (-counts.get(name, 0), has_elsewhere.get(name, 0), name))
    return {name: each + (place < left) for place, name in enumerate(first)}
