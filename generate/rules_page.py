"""The table of docs/rules.md: each rule, where the code does it, which scenarios show it.

What the contract says comes from
docs/semantics.md; where in the code, from the numbers that docstrings and comments cite; scenarios,
from the `rules` of their files.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTRACT = ROOT / "docs" / "semantics.md"

_CITED = re.compile(r"\b([RC])(\d{1,3})\b(?:\s*[-–]\s*\1(\d{1,3})\b)?")
_SENTENCE_END = re.compile(r"(?<=\.)\s+(?=[A-Z`])")
_ENOUGH_CHARS = 60
"""A first sentence that is shorter brings the next one with it."""
_MOST_CHARS = 240
_PARTS = (
    "core", "protocol", "processor", "kafka", "config", "worker", "client", "spark", "testing",
    "cli",
)  # fmt: skip
"""Of `ringfaust`, in the order of the page. The player of scenarios shows the rules, no more."""
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

HEAD = """\
# Rule by rule

`make generate` makes this page from the numbers that the code's comments and the scenario files
cite; a test compares them. Each number links to its section of the [contract](semantics.md), which
has the whole text; here is its beginning. The ten steps at the end of the contract have no number:
they name the rules that they consist of.

| rule | what | where in the code | scenarios |
|---|---|---|---|
"""


@dataclass(slots=True)
class Rule:
    """A rule of the contract."""

    number: str
    text: str
    section: str
    """Anchor of its heading."""
    places: dict[str, list[str]] = field(default_factory=dict)
    """By file (relative to `ringfaust`): functions, classes and fields that cite it."""
    scenarios: list[str] = field(default_factory=list)
    """Names of the files."""


def read_rules() -> dict[str, Rule]:
    """All rules of the contract in its order, with their places and scenarios."""
    rules = {rule.number: rule for rule in _contract()}
    package = ROOT / "ringfaust"
    for path in (path for part in _PARTS for path in sorted((package / part).rglob("*.py"))):
        name = path.relative_to(package).as_posix()
        for number, place in _citations(path.read_text("utf-8")):
            if number in rules:
                places = rules[number].places.setdefault(name, [])
                if place and place not in places:
                    places.append(place)
    for path in sorted((ROOT / "tests" / "scenarios").glob("*.yaml")):
        line = re.search(r"^rules: \[(.*)\]", path.read_text("utf-8"), re.MULTILINE)
        for number in re.split(r",\s*", line[1]) if line else ():
            if number in rules:
                rules[number].scenarios.append(path.stem)
    return rules


# --- the contract -------------------------------------------------------------------------------


def _contract() -> Iterator[Rule]:
    section = ""
    for paragraph in CONTRACT.read_text("utf-8").split("\n\n"):
        if heading := re.match(r"#+ (.*)", paragraph):
            section = re.sub(r"[^\w\- ]", "", heading[1]).strip().lower().replace(" ", "-")
        elif rule := re.match(r"\*\*([RC]\d+)\.\*\* (.*)", paragraph, re.DOTALL):
            yield Rule(rule[1], " ".join(rule[2].split()), section)


def beginning(text: str) -> str:
    """The first sentences of a rule."""
    said = ""
    for sentence in _SENTENCE_END.split(text):
        said = f"{said} {sentence}".strip()
        if len(said) >= _ENOUGH_CHARS:
            break
    if len(said) <= _MOST_CHARS:
        return said
    cut = said[:_MOST_CHARS].rsplit(" ", 1)[0]
    if cut.count("`") % 2:
        cut = cut[: cut.rindex("`")]
    return cut.rstrip(" ,;:(") + " …"


# --- the code -----------------------------------------------------------------------------------


def _citations(source: str) -> Iterator[tuple[str, str]]:
    """(rule, where it is cited) of one file, in its order; no place is the file itself."""
    tree = ast.parse(source)
    prose = {
        node.lineno: node.end_lineno or node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and line in prose):
            for number in _numbers(token.string):
                yield number, _place(tree, line)


def _numbers(text: str) -> Iterator[str]:
    for letter, first, last in _CITED.findall(text):
        for number in range(int(first), int(last or first) + 1):
            yield f"{letter}{number}"


def _place(scope: ast.Module | _Definition, line: int, outer: str = "") -> str:
    """The function, class or field that the line is in or, as prose, stands behind."""
    before = ""
    for node in scope.body:
        if node.lineno > line:
            break
        if isinstance(node, _Definition):
            before = ""
            if line <= (node.end_lineno or node.lineno):
                return _place(node, line, f"{outer}{node.name}.")
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            before = ast.unparse(target) if isinstance(target, ast.Name) else ""
        elif not isinstance(node, ast.Expr) or line > (node.end_lineno or node.lineno):
            before = ""
    return f"{outer}{before}".strip(".")


# --- the page -----------------------------------------------------------------------------------


def page() -> str:
    """The whole of docs/rules.md."""
    return HEAD + "".join(map(_row, read_rules().values()))


def _row(rule: Rule) -> str:
    code = "<br>".join(
        f"[{name}](../ringfaust/{name})" + (": " if places else "") + ", ".join(map(_code, places))
        for name, places in rule.places.items()
    )
    scenarios = ", ".join(f"[{name}](../tests/scenarios/{name}.yaml)" for name in rule.scenarios)
    text = _unlinked(beginning(rule.text)).replace("|", "\\|")
    number = f"[{rule.number}](semantics.md#{rule.section})"
    return f"| {number} | {text} | {code} | {scenarios} |\n"


def _code(name: str) -> str:
    return f"`{name}`"


def _unlinked(text: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
