"""JSON Schemas of what `--json` prints, one for each command.

`make schema` writes them to `docs/schemas/`. New fields may be added to the output; existing ones
keep their names and meaning. It also writes `docs/cli.md`, the reference of all commands.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ringfaust.cli.configuration import CheckedConfig, ShownSetting
from ringfaust.cli.dead import DeadDetails, EvictedCount
from ringfaust.cli.finding import Finding
from ringfaust.cli.redrive import RedriveResult
from ringfaust.cli.reference import page
from ringfaust.cli.topics import PlannedTopic
from ringfaust.client.inspected import (
    ConsumerDetails,
    MessageDetails,
    QueueDetails,
    QueueSummary,
    XidDetails,
)
from ringfaust.client.lifecycles import Trace
from ringfaust.client.status_rows import WorkerStatus
from ringfaust.config.topics import TopicProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedWorker(WorkerStatus):
    """A worker as `worker ls` prints it."""

    is_stale: bool = field()  # type: ignore[assignment] # there it is a method
    """Whether it has been silent for too long."""


SCHEMAS: dict[str, Any] = {
    "queue ls": list[QueueSummary],
    "queue show": QueueDetails,
    "message browse": list[MessageDetails],
    "message show": MessageDetails,
    "consumer ls": list[ConsumerDetails],
    "dead ls": list[DeadDetails],
    "dead redrive": RedriveResult,
    "evicted tail": list[DeadDetails],
    "evicted count": list[EvictedCount],
    "evicted redrive": RedriveResult,
    "scheduled ls": list[MessageDetails],
    "worker ls": list[ListedWorker],
    "xid ls": list[XidDetails],
    "topics plan": list[PlannedTopic],
    "topics verify": list[TopicProblem],
    "config check": CheckedConfig,
    "config show": list[ShownSetting],
    "doctor": list[Finding],
    "trace": Trace,
}
"""The type of what each command prints with `--json`."""

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"


def file_name(command: str) -> str:
    """Return the name of a command's schema file."""
    return f"{command.replace(' ', '-')}.schema.json"


def schema_text(command: str) -> str:
    """Return the JSON Schema of a command's output as the text of its file."""
    adapter: TypeAdapter[Any] = TypeAdapter(SCHEMAS[command])
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_published(adapter.json_schema(mode="serialization")),
        "title": f"Output of ringfaust {command} --json",
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def commands_text() -> str:
    """Return the text of `docs/cli.md`."""
    return page({command: file_name(command) for command in SCHEMAS})


def _published(schema: Any) -> Any:
    """Adapt a generated schema: every field is always printed, and bytes are printed as text."""
    if isinstance(schema, list):
        return [_published(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _published(each) for name, each in schema.items() if name not in _DROPPED}
    if "properties" in kept:
        kept["required"] = list(kept["properties"])
    if schema.get("format") == "binary":
        kept["description"] = "text, or base64 behind `base64:`"
        del kept["format"]
    return kept


_DROPPED = {"title", "default"}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in SCHEMAS:
        (FOLDER / file_name(name)).write_text(schema_text(name), "utf-8")
    (FOLDER.parent / "cli.md").write_text(commands_text(), "utf-8")
