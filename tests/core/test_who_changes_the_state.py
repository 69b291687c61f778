"""Only `transitions` changes the state, and nothing there refuses, as the syntax trees show.

So a refused command cannot have changed anything (R103): what refuses it cannot change, and what
changes cannot refuse. There are no exemptions. What counts as a change: a call of a table's `put`,
`put_new` or `delete`; an assignment to an attribute (`x.a = …`, `x.a += …`, `x.a[k] = …`,
`del x.a`), but for those of a new object in its constructor; a call that changes a collection in
an attribute of an entity (`queue.paused.add(…)`); a call of a method that changes what it is of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ringfaust.core

CORE = Path(ringfaust.core.__file__).parent

HOLDERS = {
    "address.py", "model.py", "queue.py", "sent_ids.py", "settlement_history.py", "state.py",
    "table.py", "work.py",
}  # fmt: skip
"""They hold the state: they decode it, store it, and offer methods that change it."""
CHANGES = {
    "accept", "advance", "arrive", "begin", "change", "clear_wake", "clear_wake_for_xids",
    "committed", "configure", "create", "delete", "depart", "drop_first", "end", "erase", "forget",
    "forget_queue",
    "give_back", "go_on",
    "group_consumers", "hold", "join", "keep", "leave", "leave_address", "let_go",
    "mark_evicted", "put", "put_new",
    "raise_level", "remember", "reset", "retain", "save", "save_rows",
    "shed", "trim", "use", "use_address", "use_spec", "wake_by", "wake_for_xids_by", "writes",
}  # fmt: skip
"""Methods of the holders that change them. `Work.spend` and `defers` count and wait."""
COLLECTION_CALLS = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove",
    "setdefault", "update",
}  # fmt: skip
COLLECTIONS = {
    "changed", "consumers", "consumers_by_priority", "cursors", "held", "level_counts", "members",
    "pages", "paused", "queues", "settings", "stages", "to_auto_delete",
}  # fmt: skip
"""Attributes of the holders that hold a collection."""
KNOWN_BY = ("queue", "state", "table", "work")
SOURCES = {path: path.read_text("utf-8") for path in sorted(CORE.rglob("*.py"))}
OTHERS = [
    path
    for path, source in SOURCES.items()
    if path.parent.name != "transitions"
    and path.name not in HOLDERS
    and any(f"from ringfaust.core.{name} import" in source for name in KNOWN_BY)
]
"""Every other module that knows a queue, a table, the state or the work on a command."""
CHECKS = [path for path in OTHERS if path.parent.name == "checks"]
TRANSITIONS_PACKAGE = "ringfaust.core.transitions"
TRANSITIONS = [path for path in SOURCES if path.parent.name == "transitions"]


def changes(source: str, *, calls: bool = True) -> list[tuple[int, str]]:
    """(line, text) of each change in a module; `calls`: also of the holders' methods."""
    return list(_changes_in(ast.parse(source), "", calls))


def _changes_in(node: ast.AST, function: str, calls: bool) -> Iterator[tuple[int, str]]:
    for child in ast.iter_child_nodes(node):
        name = child.name if isinstance(child, ast.FunctionDef) else function
        if _is_assignment(child, name) or (isinstance(child, ast.Call) and _changes(child, calls)):
            assert isinstance(child, ast.stmt | ast.expr)
            yield child.lineno, ast.unparse(child)
        yield from _changes_in(child, name, calls)


def _is_assignment(node: ast.AST, function: str) -> bool:
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    else:
        return False
    return any(_is_attribute(target, function) for target in targets)


def _is_attribute(target: ast.AST, function: str) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return any(_is_attribute(each, function) for each in target.elts)
    if isinstance(target, ast.Attribute) and function == "__init__":
        return not (isinstance(target.value, ast.Name) and target.value.id == "self")
    while isinstance(target, ast.Subscript | ast.Starred):
        target = target.value
    return isinstance(target, ast.Attribute)


def _changes(call: ast.Call, calls: bool) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    owner, method = call.func.value, call.func.attr
    if method in CHANGES:
        return calls
    if method not in COLLECTION_CALLS:
        return False
    while isinstance(owner, ast.Subscript):
        owner = owner.value
    return isinstance(owner, ast.Attribute) and owner.attr in COLLECTIONS


def _name(path: Path) -> str:
    return path.relative_to(CORE).as_posix()


@pytest.mark.parametrize("path", OTHERS, ids=_name)
def test_no_other_module_changes_the_state(path: Path) -> None:
    """The engine may call methods of `Work`, to begin and to end a step; no other module may."""
    found = changes(SOURCES[path], calls=path.name != "engine.py")
    assert not found, "move these to core/transitions"


def test_there_are_modules_to_look_at() -> None:
    assert {"engine.py", "admission.py", "checks/settles.py"} <= set(map(_name, OTHERS))
    assert "entering.py" in {path.name for path in TRANSITIONS}


@pytest.mark.parametrize("file", sorted(HOLDERS))
def test_each_method_that_changes_is_known(file: str) -> None:
    """A public method that assigns to its object, or puts rows, is in `CHANGES`."""
    tree = ast.parse(SOURCES[CORE / file])
    for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for method in (node for node in kind.body if isinstance(node, ast.FunctionDef)):
            if method.name.startswith("_") or method.name in CHANGES | READS:
                continue
            found = list(_changes_in(method, method.name, calls=True))
            assert not found, f"{kind.name}.{method.name} changes it"


def test_each_changing_method_exists() -> None:
    methods = {
        node.name
        for file in HOLDERS
        for node in ast.walk(ast.parse(SOURCES[CORE / file]))
        if isinstance(node, ast.FunctionDef)
    }
    assert methods >= CHANGES | READS


READS = {
    # They decode, open a table or compile, once.
    "address", "consumer_rows", "deliveries", "departed", "expiry", "groups", "idle_groups",
    "level", "of", "operations", "past", "queue", "scheduled", "sent_ids", "session",
    # They count what was looked at, and put a stage off.
    "defers", "spend", "weigh",
}  # fmt: skip


@pytest.mark.parametrize("path", CHECKS, ids=_name)
def test_a_check_reaches_no_transition_but_opening(path: Path) -> None:
    for node in ast.walk(ast.parse(SOURCES[path])):
        assert not isinstance(node, ast.Import)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(TRANSITIONS_PACKAGE):
            are_constants = all(alias.name.isupper() for alias in node.names)
            assert are_constants or node.module == f"{TRANSITIONS_PACKAGE}.opening"


@pytest.mark.parametrize("path", TRANSITIONS, ids=_name)
def test_a_transition_cannot_refuse(path: Path) -> None:
    for node in ast.walk(ast.parse(SOURCES[path])):
        assert not isinstance(node, ast.Raise)
        if isinstance(node, ast.ImportFrom):
            assert not str(node.module).startswith("ringfaust.core.checks")


@pytest.mark.parametrize(
    "violation",
    [
        "queue.deliveries.put(1, delivery)",
        "queue.level(5).put_new(position, message)",
        "work.state.session('s').delete(key)",
        "queue.sequence += 1",
        "queue.counts.added = 1",
        "queue.level_counts[5] += 1",
        "consumer.active, other = True, 1",
        "del queue.consumers[name]",
        "queue.paused.add('dispatch')",
        "known.pages[7].update(ids)",
        "work.accept()",
        "queue.history.remember(consumer, id)",
        "work.stages.append(stage)",
    ],
)
def test_a_planted_violation_is_found(violation: str) -> None:
    assert [
        line for line, _ in changes(f"def do(work, queue):\n    if queue:\n        {violation}\n")
    ]


@pytest.mark.parametrize(
    "harmless",
    [
        "count = queue.counts.ready",
        "names.append(queue.name)",
        "work.effects.append(refused)",
        "stage = create(Stage, kind, queue.name, ())",
    ],
)
def test_a_read_is_no_violation(harmless: str) -> None:
    assert not changes(f"def do(work, queue):\n    {harmless}\n")
