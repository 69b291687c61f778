"""`create` makes the same values as a class does, and in C hides from the collector what it may."""

from __future__ import annotations

import gc
import pickle
from typing import Any, NamedTuple

import pytest

from ringfaust.core.model import PLAIN, EvictReason, Message
from ringfaust.protocol.records import Payload
from tests.native.checks import REFUSALS, assert_keeps_nothing


class Pair(NamedTuple):
    first: Any
    second: Any


class Open(Pair):
    """Its values have a dict, as those of a named tuple's class have not."""


def test_values_are_those_that_the_class_makes(functions: Any) -> None:
    made = functions.create(Pair, 1, [2])
    assert made == Pair(1, [2])
    assert type(made) is Pair
    assert made._replace(first=3) == Pair(3, [2])
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(functions.create(Pair, 1, 2)) == hash(Pair(1, 2))


def test_the_collector_sees_only_what_may_be_in_a_cycle(c: Any) -> None:
    payload = c.create(Payload, b"k", b"v", (), "in/0/1")
    message = c.create(Message, "m", 1, PLAIN, 4, 5, 0, 0, "", 0, 0, (), 1, payload, True, False)
    assert not gc.is_tracked(payload)
    assert not gc.is_tracked(message)
    assert gc.is_tracked(c.create(Pair, [], 1))
    assert gc.is_tracked(c.create(Pair, {}, 1)), "it may be filled later"
    assert gc.is_tracked(c.create(Pair, "text", EvictReason.LIMIT))


def in_itself(create: Any, watched: Any) -> None:
    content = [watched]
    content.append(create(Pair, content, 1))


def in_its_dict(create: Any, watched: Any) -> None:
    made = create(Open, 1, 2)
    made.itself, made.watched = made, watched


@pytest.mark.parametrize("make", [in_itself, in_its_dict])
def test_a_cycle_is_collected(functions: Any, make: Any) -> None:
    class Watched:
        alive = 0

        def __init__(self) -> None:
            Watched.alive += 1

        def __del__(self) -> None:
            Watched.alive -= 1

    make(functions.create, Watched())
    gc.collect()
    assert Watched.alive == 0


WRONG: list[tuple[Any, ...]] = [
    (), (7, 1), (tuple, 1), (list, 1), (object, 1), (Pair,), (Pair, 1), (Pair, 1, 2, 3),
    (type("Sub", (tuple,), {}), 1), (type("Odd", (tuple,), {"_fields": 7}), 1),
]  # fmt: skip


@pytest.mark.parametrize("arguments", WRONG)
def test_only_whole_named_tuples_are_created(functions: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(REFUSALS):
        functions.create(*arguments)


def test_nothing_is_kept(functions: Any) -> None:
    create, value = functions.create, object()
    calls = [lambda: create(Pair, value, [value]), lambda: create(Pair, value, value)]
    for arguments in WRONG:
        calls.append(lambda arguments=arguments: create(*arguments))
    assert_keeps_nothing(calls, [value, Pair])
