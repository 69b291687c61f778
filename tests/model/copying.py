"""Let `copy.deepcopy` copy the engine's objects when they are compiled.

mypyc creates no object without its constructor's arguments. So an empty one is created, and given
copies of all attributes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ringfaust.core.address import Address
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import AckMode, Consumer, Counts
from ringfaust.core.queue import Queue
from ringfaust.core.scan import Scan
from ringfaust.core.settings import AddressSpec, QueueSpec
from ringfaust.core.settlement_history import ConsumerHistory, Past, SettlementHistory
from ringfaust.core.state import State
from ringfaust.core.table import Chunk, Kind, Ordered, Rows, Store, WriteSet


def use_copiers(empty_store: Callable[[], Store]) -> None:
    """Register a copier for each compiled class."""
    for kind, new in _empty(empty_store).items():
        if hasattr(kind, "__mypyc_attrs__"):
            copy._deepcopy_dispatch[kind] = _copier(new)  # type: ignore[attr-defined]


def _empty(store: Callable[[], Store]) -> dict[type, Callable[[], Any]]:
    def write_set() -> WriteSet:
        return WriteSet(store(), 1)

    return {
        WriteSet: write_set,
        Rows: lambda: Rows(write_set(), Kind.RING, ""),
        Ordered: lambda: Ordered(write_set(), Kind.RING, "", fresh=True),
        Chunk: lambda: Chunk(None, []),
        Scan: lambda: Scan(None),
        State: lambda: State(store(), Catalog({}, {}, {})),
        Queue: lambda: Queue(write_set(), "", QueueSpec(), None),
        Address: lambda: Address(write_set(), "", AddressSpec(), None),
        SettlementHistory: lambda: SettlementHistory(write_set(), "", (0, 0)),
        ConsumerHistory: lambda: ConsumerHistory(Past(0, 0), Rows(write_set(), Kind.RING, "")),
        Consumer: lambda: Consumer("", 0, 0, 0, AckMode.AUTO, "", True, 0),
        Counts: Counts,
    }


def _copier(new: Callable[[], Any]) -> Callable[[Any, dict[int, Any]], Any]:
    def copier(old: Any, memo: dict[int, Any]) -> Any:
        made = new()
        memo[id(old)] = made
        for name in type(old).__mypyc_attrs__:
            if hasattr(old, name):
                setattr(made, name, copy.deepcopy(getattr(old, name), memo))
        return made

    return copier
