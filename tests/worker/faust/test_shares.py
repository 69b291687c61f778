"""Who serves a partition, and who is its standby (R127)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfaust.protocol.status import CAUGHT_UP_RECORDS
from ringfaust.worker.faust.shares import Held, Member, share_out

END = 1_000_000


def member(
    serves: tuple[int, ...] = (),
    follows: tuple[int, ...] = (),
    *,
    has: Mapping[int, int] | None = None,
    lag: int = 0,
) -> Member:
    """A member that has what it serves and follows, but for `lag` records, and `has` by offset."""
    held = {number: Held(END - lag) for number in (*serves, *follows)}
    held |= {number: Held(offset) for number, offset in (has or {}).items()}
    return Member(serves, follows, held, takes_standbys=True)


def shares(partitions: int, **members: Member) -> tuple[dict[str, str], dict[str, str]]:
    """By member: the partitions that it serves, and those that it follows, as text."""
    owners, standbys = share_out(partitions, members, {})
    return _by_member(owners), _by_member(standbys)


def _by_member(given: Mapping[int, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, name in sorted(given.items()):
        found[name] = found.get(name, "") + str(number)
    return found


def test_nothing_moves_without_need() -> None:
    a, b = member((0, 3), (1, 2)), member((1, 2), (0, 3))
    assert shares(4, a=a, b=b) == ({"a": "03", "b": "12"}, {"a": "12", "b": "03"})


def test_the_partitions_of_a_dead_member_go_to_their_standbys() -> None:
    b, c = member((2, 3), (0,)), member((4, 5), (1,))
    assert shares(6, b=b, c=c)[0] == {"b": "023", "c": "145"}


def test_a_standby_that_is_far_behind_is_not_preferred() -> None:
    late = member((2,), (0,), lag=CAUGHT_UP_RECORDS + 1)
    assert shares(3, late=late, up=member((1,), has={0: END}))[0] == {"late": "2", "up": "01"}


def test_a_standby_that_is_caught_up_is_preferred_to_an_owner_that_is_not() -> None:
    """The owner has lost its disk, say, and is back before anybody has taken its place."""
    behind = member((0, 1), lag=CAUGHT_UP_RECORDS + 1)
    assert shares(3, behind=behind, up=member((2,), (0,)))[0] == {"behind": "1", "up": "02"}


def test_who_is_back_gets_what_it_has_and_the_others_keep_the_rest() -> None:
    back = member(has={0: END // 2, 1: END // 2})
    a = member((0, 1, 2, 3))
    assert shares(4, a=a, back=back) == ({"a": "23", "back": "01"}, {"a": "01", "back": "23"})


def test_of_several_old_stores_the_one_that_was_written_last_is_preferred() -> None:
    """After a stop of all workers nobody has looked into its store yet."""
    held = ({0: Held(0, 5), 1: Held(0, 9)}, {0: Held(0, 7), 1: Held(0, 8)})
    a, b = (Member(held=each) for each in held)
    assert shares(2, a=a, b=b)[0] == {"a": "1", "b": "0"}


def test_the_owner_that_has_not_caught_up_yet_gives_way_to_who_has() -> None:
    new = Member((0,), (), {0: Held(10)}, takes_standbys=True)
    old = Member((1,), (0,), {0: Held(END), 1: Held(END)}, takes_standbys=True)
    spare = Member((2,), (), {2: Held(END)}, takes_standbys=True)
    assert shares(3, new=new, old=old, spare=spare)[0] == {"new": "0", "old": "1", "spare": "2"}
    # Balance comes first, and the old one serves it until then. But if the new one dies:
    assert shares(3, old=old, spare=spare)[0] == {"old": "01", "spare": "2"}


def test_a_version_that_does_not_say_what_it_has_keeps_what_it_serves() -> None:
    old = Member((0,), (), {}, takes_standbys=False)
    assert shares(1, old=old, new=member(has={0: 5}))[0] == {"old": "0"}


@pytest.mark.parametrize("setting", [True, False])
def test_a_member_alone_or_without_the_setting_follows_nothing(setting: bool) -> None:
    alone = Member(takes_standbys=setting)
    assert share_out(2, {"a": alone}, {}) == ({0: "a", 1: "a"}, {})
    two = {"a": Member(takes_standbys=setting), "b": Member()}
    owners, standbys = share_out(2, two, {})
    assert sorted(owners.values()) == ["a", "b"]
    assert list(standbys.values()) == (["a"] if setting else [])


def test_a_spare_member_has_only_standbys() -> None:
    a, b, spare = member((0,)), member((1,)), Member(takes_standbys=True)
    owners, standbys = shares(2, a=a, b=b, spare=spare)
    assert owners == {"a": "0", "b": "1"}
    assert "spare" in standbys


_HELD = st.builds(Held, st.sampled_from([0, 5, END - 5, END]), st.integers(0, 3))
_MEMBERS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Member,
        st.frozensets(st.integers(0, 12)),
        st.frozensets(st.integers(0, 12)),
        st.dictionaries(st.integers(0, 12), _HELD),
        st.booleans(),
    ),
    min_size=1,
)


@given(st.integers(0, 12), _MEMBERS)
def test_it_is_balanced_complete_and_nobody_is_its_own_standby(
    partitions: int, members: dict[str, Member]
) -> None:
    owners, standbys = share_out(partitions, members, {})
    assert owners.keys() == {*range(partitions)}
    counts = Counter(owners.values())
    of_each = [counts[name] for name in members]
    assert max(of_each) - min(of_each) <= 1
    takers = {name for name, each in members.items() if each.takes_standbys}
    for number, owner in owners.items():
        assert standbys.get(number) != owner
        assert (number in standbys) is bool(takers - {owner})
    assert {*standbys.values()} <= takers


@given(st.integers(0, 12), _MEMBERS)
def test_what_was_shared_out_stays(partitions: int, members: dict[str, Member]) -> None:
    owners, standbys = share_out(partitions, members, {})
    after = {
        name: member(
            tuple(number for number, owner in owners.items() if owner == name),
            tuple(number for number, standby in standbys.items() if standby == name),
        )
        for name in members
        if members[name].takes_standbys
    }
    after |= {
        name: Member(frozenset(n for n, owner in owners.items() if owner == name), (), {
            n: Held(END) for n, owner in owners.items() if owner == name
        })
        for name in members.keys() - after.keys()
    }  # fmt: skip
    assert share_out(partitions, after, {})[0] == owners
