"""JSON Schemas of the configuration files, so that editors can complete and check them.

`make schema` writes them to `config/`. They describe structure and types; `ringfaust config check`
also checks what a schema cannot express.
"""

from __future__ import annotations

import json
from typing import Any

from ringfaust.config.documents import ConfigModel, shipped
from ringfaust.config.queues import QueuesConfig
from ringfaust.config.worker import WorkerConfig

SCHEMAS: dict[str, type[ConfigModel]] = {
    "queues.schema.json": QueuesConfig,
    "worker.schema.json": WorkerConfig,
}
"""Names of the schema files, with the model of each."""


def schema_text(model: type[ConfigModel]) -> str:
    """Return the JSON Schema of a model as the text of its file."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for file_name, file_model in SCHEMAS.items():
        (shipped("config") / file_name).write_text(schema_text(file_model), "utf-8")
