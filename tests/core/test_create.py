"""`create` in C makes the same values as in Python, and hides from the collector what it may."""

from __future__ import annotations

import gc
import pickle
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from ringfaust.core.model import PLAIN, EvictReason, Message
from ringfaust.protocol.records import Payload
from tests.protocol.twins import REFUSALS, assert_keeps_nothing, twins

FOUND = twins("core/create")
pytestmark = pytest.mark.skipif(FOUND is None, reason="nothing is compiled")


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.fixture(scope="module")
def both() -> tuple[ModuleType, ModuleType] | None:
    return FOUND


def test_values_are_those_that_the_class_makes(both: Any) -> None:
    for module in both:
        made = module.create(Pair, 1, [2])
        assert made == Pair(1, [2])
        assert type(made) is Pair
        assert made._replace(first=3) == Pair(3, [2])
        assert pickle.loads(pickle.dumps(made)) == made


def test_the_collector_sees_only_what_may_be_in_a_cycle(both: Any) -> None:
    create = both[1].create
    payload = create(Payload, b"k", b"v", (), "in/0/1")
    message = create(Message, "m", 1, PLAIN, 4, 5, 0, 0, "", 0, 0, (), 1, payload, True, False)
    assert not gc.is_tracked(payload)
    assert not gc.is_tracked(message)
    assert gc.is_tracked(create(Pair, [], 1))
    assert gc.is_tracked(create(Pair, {}, 1)), "it may be filled later"
    assert gc.is_tracked(create(Pair, "text", EvictReason.LIMIT))


def test_a_cycle_is_collected(both: Any) -> None:
    class Watched:
        alive = 0

        def __init__(self) -> None:
            Watched.alive += 1

        def __del__(self) -> None:
            Watched.alive -= 1

    content: list[Any] = [Watched()]
    content.append(both[1].create(Pair, content, 1))
    del content
    gc.collect()
    assert Watched.alive == 0


WRONG: list[tuple[Any, ...]] = [(), (7, 1), (tuple, 1), (list, 1), (object, 1)]


@pytest.mark.parametrize("arguments", WRONG)
def test_only_named_tuples_are_created(both: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(REFUSALS):
        both[1].create(*arguments)


def test_nothing_is_kept(both: Any) -> None:
    create, value = both[1].create, "value"
    calls = [lambda: create(Pair, value, [value]), lambda: create(Pair, value, value)]
    for arguments in WRONG:
        calls.append(lambda arguments=arguments: create(*arguments))
    assert_keeps_nothing(calls, [value, Pair])
