"""JSON Schemas of the configuration files, for editors, and of what `--json` prints.

They describe structure and types; `ringfaust config check` also checks what a schema cannot
express. New fields may be added to the output of a command; existing ones keep their names and
meaning.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from ringfaust.cli.applying import AppliedRevision, Diff, ShownRevision
from ringfaust.cli.configuration import CheckedConfig, ShownSetting
from ringfaust.cli.context import ListedContext
from ringfaust.cli.dead import DeadDetails, EvictedCount
from ringfaust.cli.finding import Finding
from ringfaust.cli.partition import ListedPartition
from ringfaust.cli.receive import ReceivedMessage
from ringfaust.cli.redrive import RedriveResult
from ringfaust.cli.topics import PlannedTopic
from ringfaust.cli.upgrade import FinishedUpgrade, UpgradeStatus
from ringfaust.client.inspected import (
    ConsumerDetails,
    MessageDetails,
    QueueDetails,
    QueueSummary,
    SettingSince,
    XidDetails,
)
from ringfaust.client.lifecycles import Trace
from ringfaust.client.status_rows import WorkerStatus
from ringfaust.config.documents import ConfigModel
from ringfaust.config.topics import TopicProblem
from ringfaust.console.openapi import published
from ringfaust.importers.imported import ImportFinding


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedWorker(WorkerStatus):
    """A worker as `worker ls` prints it."""

    is_stale: bool = field()  # type: ignore[assignment] # there it is a method
    """Whether it has been silent for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownQueue(QueueDetails):
    """A queue as `queue show` prints it."""

    others: list[QueueDetails]
    """The same of each partition in `also_in`."""
    since: dict[str, SettingSince]
    """By setting: which `apply` brought the value that the configuration gives it."""


OUTPUTS: dict[str, Any] = {
    "queue ls": list[QueueSummary],
    "queue show": ShownQueue,
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
    "partition ls": list[ListedPartition],
    "partition show": ListedPartition,
    "xid ls": list[XidDetails],
    "topics plan": list[PlannedTopic],
    "topics verify": list[TopicProblem],
    "config check": CheckedConfig,
    "config show": list[ShownSetting],
    "context ls": list[ListedContext],
    "context show": ListedContext,
    "doctor": list[Finding],
    "apply": AppliedRevision,
    "diff": Diff,
    "history": list[ShownRevision],
    "upgrade status": UpgradeStatus,
    "upgrade finish": FinishedUpgrade,
    "trace": Trace,
    "receive": ReceivedMessage,
}
"""The type of what each command prints with `--json`."""
REPORTS: dict[str, Any] = dict.fromkeys(
    ("import artemis", "import rabbitmq", "import openmq"), list[ImportFinding]
)
"""The type of what each command prints with `--report json`."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_text(content: dict[str, Any]) -> str:
    """Return the text of a file of JSON."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def of_model(model: type[ConfigModel]) -> str:
    """Return the JSON Schema of a configuration file."""
    return json_text({"$schema": _DIALECT, **model.model_json_schema()})


def output_file(command: str) -> str:
    """Return the path of the schema of a command's output."""
    return f"docs/schemas/{command.replace(' ', '-')}.schema.json"


def json_option(command: str) -> str:
    """Return the option with which a command prints JSON."""
    return "--report json" if command in REPORTS else "--json"


def of_output(command: str) -> str:
    """Return the JSON Schema of what a command prints."""
    adapter: TypeAdapter[Any] = TypeAdapter((OUTPUTS | REPORTS)[command])
    schema = {
        "$schema": _DIALECT,
        **published(adapter.json_schema(mode="serialization")),
        "title": f"Output of ringfaust {command} {json_option(command)}",
    }
    return json_text(schema)
