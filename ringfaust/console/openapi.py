"""The OpenAPI 3.1 document of the HTTP API, derived from its operations."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from ringfaust import __version__
from ringfaust.console.access import COOKIE
from ringfaust.console.operations import OPERATIONS, Operation
from ringfaust.console.problems import ProblemDetails
from ringfaust.console.rendering import PREFIX

API_PREFIX = f"{PREFIX}/api/v1"
"""Below the console, so that its cookie counts and a proxy has one place to pass on."""
Schema = dict[str, Any]
_REF = "#/components/schemas/{model}"
_PROBLEM = {
    "description": "It failed.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


@cache
def openapi() -> Schema:
    """Return the document."""
    inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (each.name, "validation", TypeAdapter(each.parameters)) for each in OPERATIONS.values()
    ]
    answers: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (each.name, "serialization", each.answer)
        for each in OPERATIONS.values()
        if each.answer is not None
    ]
    _, given = TypeAdapter.json_schemas(inputs, ref_template=_REF)
    schemas, told = TypeAdapter.json_schemas(answers, ref_template=_REF)
    parts = {**given["$defs"], **published(told["$defs"])}
    parts["Problem"] = TypeAdapter(ProblemDetails).json_schema(ref_template=_REF)
    parts |= parts["Problem"].pop("$defs")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ringfaust",
            "version": __version__,
            "description": "Operate the queues of an application: what `Admin` does. "
            "docs/http-api.md explains it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": API_PREFIX}],
        "security": [{"token": []}, {"session": []}],
        "paths": {
            each.path: _path(each, parts, published(schemas.get((each.name, "serialization"))))
            for each in OPERATIONS.values()
        },
        "components": {
            "schemas": parts,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
    }


def _path(operation: Operation, parts: Schema, answer: Any) -> Schema:
    """The path of an operation, which has one method."""
    role = "read" if operation.is_read else "change"
    described: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"{operation.description} Needs the role `{role}`.".strip(),
        "responses": {"default": _PROBLEM},
    }
    if answer is None:
        described["responses"]["204"] = {"description": "Done."}
    else:
        content = {"application/json": {"schema": answer}}
        described["responses"]["200"] = {"description": "The answer.", "content": content}
    if operation.is_read:
        described["parameters"] = _parameters(parts.pop(operation.name))
        return {"get": described}
    body = {"$ref": _REF.format(model=operation.name)}
    described["requestBody"] = {
        "required": True, "content": {"application/json": {"schema": body}},
    }  # fmt: skip
    return {"post": described}


def _parameters(schema: Schema) -> list[Schema]:
    required = schema.get("required", ())
    found = []
    for name, described in schema.get("properties", {}).items():
        kept = {key: each for key, each in described.items() if key not in ("title", "description")}
        one = {"name": name, "in": "query", "required": name in required, "schema": kept}
        found.append(one | {key: described[key] for key in ("description",) if key in described})
    return found


def published(schema: Any) -> Any:
    """Adapt a generated schema: every field is always there, and bytes are text."""
    if isinstance(schema, list):
        return [published(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: published(each) for name, each in schema.items() if name not in _DROPPED}
    if "properties" in kept:
        kept["required"] = list(kept["properties"])
    if schema.get("format") == "binary":
        kept["description"] = "text, or base64 behind `base64:`"
        del kept["format"]
    return kept


_DROPPED = {"title", "default"}
