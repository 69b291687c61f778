"""The reference of all settings as a page, `docs/configuration.md`."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import ringfaust
from ringfaust.config.oidc import OidcConfig
from ringfaust.config.queues import AddressConfig, QueuesConfig
from ringfaust.config.routes import RouteConfig
from ringfaust.config.security import SecurityConfig
from ringfaust.config.worker import OLD_NAMES, WebConfig, WorkerConfig
from ringfaust.core.settings import STORED_NAMES, QueueSpec, allowed_values, written_name

_INTRODUCTION = """\
# Configuration reference

Every setting with its type, its default, what is allowed and what it means. `make generate` makes
this page from the models that read the files. [config/worker.yaml](../config/worker.yaml) and
[config/queues.yaml](../config/queues.yaml) are examples with comments; JSON Schemas for editors are
beside them. `ringfaust config check --config DIR` checks both files, and names the line of every
mistake. R… and C… are rules of [the contract](semantics.md). Names without their
unit ({old}) are accepted, too; rows, events and answers have these.
"""
_SOURCE = Path(ringfaust.__file__).parent / "core" / "settings.py"


class Setting(NamedTuple):
    """A row of a table."""

    name: str
    kind: str
    default: str
    allowed: str
    meaning: str


def page() -> str:
    """Return the text of the page."""
    old = ", ".join(f"`{name}`" for name in (*STORED_NAMES.values(), *OLD_NAMES))
    parts = [_INTRODUCTION.format(old=old)]
    for heading, about, settings in _sections():
        rows = [_row(each) for each in settings]
        header = ["| setting | type | default | allowed | meaning |", "|---|---|---|---|---|"]
        parts.append("\n".join([f"{heading}\n\n{about}\n", *header, *rows, ""]))
    return "\n".join(parts)


def _sections() -> Iterator[tuple[str, str, list[Setting]]]:
    """Yield heading, introduction and settings of each table."""
    worker = (
        "The settings of one worker process. Workers may differ in all but `application`, "
        "`partitions`, `clock` and `cloud_events`."
    )
    yield "## worker.yaml", worker, list(of_model(WorkerConfig))
    yield "### security", _about(SecurityConfig), list(of_model(SecurityConfig))
    yield "### web", _about(WebConfig), list(of_model(WebConfig))
    yield "### oidc", _about(OidcConfig), list(of_model(OidcConfig))
    queues = (
        "The queues. All workers need the same file until the first `ringfaust apply`; what was "
        "applied is in effect afterwards. A name is a word, or several words separated by dots. In "
        "a *pattern*, `*` matches one word and `#` matches any number of words."
    )
    yield "## queues.yaml", queues, list(of_model(QueuesConfig))
    yield "### routes", _about(RouteConfig), list(of_model(RouteConfig))
    fields_of_queue = (
        "The fields of a queue, in `queues`, `settings` and `subscriptions`, and of "
        "`ringfaust queue set`. The last ones have a meaning only for queues of an address."
    )
    yield "### Fields of a queue", fields_of_queue, list(of_queue())
    yield "### addresses", _about(AddressConfig), list(of_model(AddressConfig))


def _about(model: type) -> str:
    return inspect.cleandoc(model.__doc__ or "")


def of_model(model: Any) -> Iterator[Setting]:
    """Yield the settings of a configuration model."""
    schema = model.model_json_schema()
    required = schema.get("required", [])
    for name, found in schema["properties"].items():
        if found.get("deprecated"):
            continue
        plain = next((each for each in found.get("anyOf", []) if each["type"] != "null"), found)
        default = "required" if name in required else _code(found.get("default"))
        if "$ref" in plain:
            yield Setting(name, "fields", "", "", f"[Below](#{name}).")
            continue
        yield Setting(name, _kind(plain), default, _bounds(plain), found.get("description", ""))


def _kind(schema: dict[str, Any]) -> str:
    """Return the type without null, which means the default."""
    kind = schema["type"]
    return next(each for each in kind if each != "null") if isinstance(kind, list) else str(kind)


def _bounds(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(_code(each) for each in schema["enum"])
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is None:
        return "" if low is None else f"{low:,} or more"
    return f"{low:,} to {high:,}"


def of_queue() -> Iterator[Setting]:
    """Yield the settings of a queue, with the docstrings of their fields."""
    types = {bool: "boolean", int: "integer", float: "number", str: "string"}
    meanings = dict(_field_docstrings("QueueSpec"))
    for field in fields(QueueSpec):
        kind = types[type(field.default)]
        allowed = allowed_values(field.name)
        name, meaning = written_name(field.name), meanings[field.name]
        yield Setting(name, kind, _code(field.default), allowed, meaning)


def _field_docstrings(name: str) -> Iterator[tuple[str, str]]:
    tree = ast.parse(_SOURCE.read_text("utf-8")).body
    (found,) = (node for node in tree if isinstance(node, ast.ClassDef) and node.name == name)
    for node, after in zip(found.body, found.body[1:], strict=False):
        match node, after:
            case (
                ast.AnnAssign(target=ast.Name(id=field)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield field, text


def _code(value: object) -> str:
    return "" if value in (None, [], {}) else f"`{json.dumps(value)}`"


def _row(setting: Setting) -> str:
    cells = (f"`{setting.name}`", *setting[1:])
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
