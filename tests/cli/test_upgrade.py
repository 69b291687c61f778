"""How far an upgrade is, from what workers publish (R129)."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.cli.upgrade import NotFinished, _refuse, judge
from ringfaust.client import WorkerStatus
from ringfaust.core import levels
from ringfaust.protocol.revisions import RaisedLevel
from tests.cli.test_doctor import status

NOW_MS = 1_000
BOTH = (1, levels.NEWEST)


def worker(name: str, **more: Any) -> WorkerStatus:
    return status(worker=name, version="0.3.0", **{"levels": BOTH, "level": {0: 1, 1: 1}} | more)


def old(name: str, **more: Any) -> WorkerStatus:
    """One of 0.2.0, which says nothing of levels."""
    return status(worker=name, version="0.2.0", **more)


@pytest.mark.parametrize(
    ("found", "members", "says"),
    [
        ([worker("a"), old("b")], 2, r"do not support feature level 2: b \(0\.2\.0\)\. Nothing"),
        ([worker("a")], 2, "1 workers of the group have not said"),
        ([], 0, "no worker runs"),
        ([worker("a", time_ms=-99_000)], 0, "no worker runs"),
    ],
)
def test_an_upgrade_is_not_finished_over_anybodys_head(
    found: list[WorkerStatus], members: int, says: str
) -> None:
    now = judge(RaisedLevel(), found, members, NOW_MS)
    assert not now.is_finished
    with pytest.raises(NotFinished, match=says):
        _refuse(now)


def test_it_can_be_finished_once_all_support_the_level_and_who_is_gone_does_not_count() -> None:
    found = [worker("a"), worker("b", partitions=()), old("c", time_ms=-99_000)]
    now = judge(RaisedLevel(), found, 2, NOW_MS)
    _refuse(now)
    assert (now.level, now.newest, now.too_old, now.silent) == (1, 2, [], 0)
    now = judge(RaisedLevel(), [old("c")], 1, NOW_MS)
    assert [each.partitions for each in now.workers] == [{0: 1, 1: 1}]
    assert not now.is_finished


def test_it_is_finished_when_every_partition_has_the_level() -> None:
    raised = RaisedLevel(2, "ann", 5)
    assert judge(raised, [worker("a", level={0: 2, 1: 2})], 1, NOW_MS).is_finished
    behind = judge(raised, [worker("a", level={0: 2, 1: 1})], 1, NOW_MS)
    assert (behind.behind, behind.is_finished) == ({1: 1}, False)
    _refuse(behind)  # `finish` tells partition 1 again
    late = judge(raised, [worker("a", level={0: 2, 1: 2}), old("b", partitions=())], 2, NOW_MS)
    assert (late.too_old, late.behind, late.is_finished) == (["b (0.2.0)"], {}, False)


def test_a_level_of_a_later_version_is_not_lowered() -> None:
    found = [worker("a", levels=(8, 9), level={0: 9, 1: 9})]
    now = judge(RaisedLevel(9, "ann", 5), found, 1, NOW_MS)
    assert (now.newest, now.is_finished) == (9, True)
