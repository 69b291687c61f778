"""Only `core/transitions` changes a table or an entity of the state, as its syntax tree shows.

What counts as a change: a call of a table's `put`, `put_new` or `delete`; an assignment to an
attribute (`x.a = …`, `x.a += …`, `x.a[k] = …`, `del x.a`); a call that changes a collection in an
attribute of an entity (`queue.paused.add(…)`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ringfaust.core

CORE = Path(ringfaust.core.__file__).parent

TABLE_CALLS = {"put", "put_new", "delete"}
COLLECTION_CALLS = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove",
    "setdefault", "update",
}  # fmt: skip
COLLECTIONS = {
    "changed", "consumers", "consumers_by_priority", "cursors", "held", "level_counts", "members",
    "pages", "paused", "settings",
}  # fmt: skip
"""Attributes of the entities that hold a collection."""

EXEMPT = {
    "table.py": "implements the tables",
    "engine.py:Step.__init__": "is no state",
    "state.py:State": "keeps what is decoded, and stores it with a batch; it decides nothing",
    "queue.py:Queue.__init__": "decodes a row",
    "queue.py:Queue._decode": "decodes a row",
    "queue.py:Queue._decode_consumers": "decodes rows",
    "queue.py:Queue.use_spec": "works out what follows from the settings",
    "queue.py:Queue.reset": "decodes a new queue under the name of a deleted one",
    "queue.py:Queue.level": "opens a table",
    **{
        f"queue.py:Queue.{name}": "opens a table"
        for name in ("scheduled", "expiry", "deliveries", "consumer_rows", "groups", "idle_groups")
    },
    "queue.py:Queue.sent_ids": "opens tables",
    "address.py:Address.__init__": "decodes a row",
    "address.py:Address.use_spec": "works out what follows from the settings",
    "model.py:Consumer.__post_init__": "compiles the selector",
    "model.py:Consumer.hold": "counts a delivery, also when it is decoded",
    "sent_ids.py:SentIds.__init__": "opens tables",
    "settlement_history.py:ConsumerHistory.__init__": "decodes rows",
    "settlement_history.py:SettlementHistory.__init__": "begins empty",
    "settlement_history.py:SettlementHistory.past": "opens a table",
    "settlement_history.py:SettlementHistory.departed": "opens a table",
    "settlement_history.py:SettlementHistory.of": "decodes a consumer's history",
    "settlement_history.py:SettlementHistory.save": "stores what transitions have changed",
    "engine.py:Engine.__init__": "is not stored",
    "handlers/addresses.py:Addresses.__init__": "is not stored",
    "handlers/addresses.py:Addresses.auto_delete": "takes the list of this step",
    "handlers/consumers.py:Consumers.__init__": "is not stored",
    "handlers/operator.py:Operator.__init__": "is not stored",
    "handlers/transactions.py:Transactions.__init__": "is not stored",
    "refusal.py:CommandRefused.__init__": "is not stored",
    "catalog.py:Catalog.__init__": "is not stored",
    "catalog.py:Catalog.spec": "keeps settings, which are not stored here",
    "selector/": "has no part in the state",
}


def changes(source: str) -> Iterator[tuple[str, int, str]]:
    """(function, line, text) of each change in a module."""
    yield from _changes_in(ast.parse(source), "")


def _changes_in(node: ast.AST, name: str) -> Iterator[tuple[str, int, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            yield from _changes_in(child, f"{name}.{child.name}".strip("."))
            continue
        if _is_change(child):
            assert isinstance(child, ast.stmt | ast.expr)
            yield name, child.lineno, ast.unparse(child)
        yield from _changes_in(child, name)


def _is_change(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign | ast.Delete):
        return any(map(_is_attribute, node.targets))
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return _is_attribute(node.target)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner, method = node.func.value, node.func.attr
    if method in TABLE_CALLS:
        return not (isinstance(owner, ast.Name | ast.Attribute) and _name(owner) in MODULES)
    if method not in COLLECTION_CALLS:
        return False
    while isinstance(owner, ast.Subscript):
        owner = owner.value
    return isinstance(owner, ast.Attribute) and owner.attr in COLLECTIONS


MODULES = {"queues", "self", "_operator"}
"""Owners whose `delete` is a function of transitions, or a handler, and not that of a table."""


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _is_attribute(target: ast.AST) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return any(map(_is_attribute, target.elts))
    while isinstance(target, ast.Subscript | ast.Starred):
        target = target.value
    return isinstance(target, ast.Attribute)


def is_exempt(file: str, function: str) -> bool:
    places = (file, f"{file}:{function}", f"{file}:{function.split('.', maxsplit=1)[0]}")
    return any(place in EXEMPT for place in places) or file.startswith("selector/")


FILES = sorted(
    path.relative_to(CORE).as_posix()
    for path in CORE.rglob("*.py")
    if path.parent.name != "transitions"
)


@pytest.mark.parametrize("file", FILES)
def test_no_other_module_changes_the_state(file: str) -> None:
    found = [
        f"{file}:{line}: {text}"
        for function, line, text in changes((CORE / file).read_text("utf-8"))
        if not is_exempt(file, function)
    ]
    assert not found, "move these to core/transitions"


def test_each_exemption_is_needed() -> None:
    used = set()
    for file in FILES:
        for function, _, _ in changes((CORE / file).read_text("utf-8")):
            used |= {file, f"{file}:{function}", f"{file}:{function.split('.')[0]}"}
    assert {place for place in EXEMPT if not place.endswith("/")} <= used


@pytest.mark.parametrize(
    "violation",
    [
        "queue.deliveries.put(1, delivery)",
        "queue.level(5).put_new(position, message)",
        "self._state.session('s').delete(key)",
        "queue.sequence += 1",
        "queue.counts.added = 1",
        "queue.level_counts[5] += 1",
        "consumer.active, other = True, 1",
        "del queue.consumers[name]",
        "queue.paused.add('dispatch')",
        "known.pages[7].update(ids)",
    ],
)
def test_a_planted_violation_is_found(violation: str) -> None:
    source = (
        f"class Handler:\n    def do(self, queue):\n        if queue:\n            {violation}\n"
    )
    assert [(name, line) for name, line, _ in changes(source)] == [("Handler.do", 4)]
    assert not is_exempt("handlers/consumers.py", "Handler.do")


@pytest.mark.parametrize(
    "harmless",
    ["count = queue.counts.ready", "names.append(queue.name)", "queues.delete(state, queue)"],
)
def test_a_read_is_no_violation(harmless: str) -> None:
    assert not list(changes(f"def do(queue):\n    {harmless}\n"))
