"""JSON Schemas of the configuration files and of what is on the topics.

`make schema` writes those of the configuration to `config/`, so that editors can complete and
check it, and the others to `docs/contracts/`, for programs in other languages. They describe
structure and types; `ringfaust config check` also checks what a schema cannot express. And it
writes `docs/configuration.md`, the same for people.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ringfaust.config.asyncapi import asyncapi
from ringfaust.config.documents import ConfigModel, shipped
from ringfaust.config.queues import QueuesConfig
from ringfaust.config.reference import page
from ringfaust.config.worker import WorkerConfig
from ringfaust.protocol.contracts import control_schema, event_schema, reply_schema

SCHEMAS: dict[str, type[ConfigModel]] = {
    "queues.schema.json": QueuesConfig,
    "worker.schema.json": WorkerConfig,
}
"""Names of the schema files, with the model of each."""


CONTRACTS: dict[str, Callable[[], dict[str, Any]]] = {
    "control.schema.json": control_schema,
    "replies.schema.json": reply_schema,
    "events.schema.json": event_schema,
    "asyncapi.json": asyncapi,
}
"""Names of the files in `docs/contracts/`, with a function that returns the content of each."""


def json_text(content: dict[str, Any]) -> str:
    """Return the text of a file of JSON."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def schema_text(model: type[ConfigModel]) -> str:
    """Return the JSON Schema of a model as the text of its file."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(),
    }
    return json_text(schema)


if __name__ == "__main__":
    for file_name, file_model in SCHEMAS.items():
        (shipped("config") / file_name).write_text(schema_text(file_model), "utf-8")
    docs = shipped("config").parent / "docs"
    (docs / "configuration.md").write_text(page(), "utf-8")
    contracts = docs / "contracts"
    contracts.mkdir(exist_ok=True)
    for file_name, content in CONTRACTS.items():
        (contracts / file_name).write_text(json_text(content()), "utf-8")
