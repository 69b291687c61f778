"""Definitions of RabbitMQ, and what an import makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ringfaust.importers.imported import Imported
from ringfaust.importers.rabbitmq import import_rabbitmq


def imported(tmp_path: Path, **definitions: Any) -> Imported:
    source = tmp_path / "definitions.json"
    source.write_text(json.dumps(definitions))
    return import_rabbitmq(source)


def queue(name: str, vhost: str = "/", **arguments: Any) -> dict[str, Any]:
    named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    return {"name": name, "vhost": vhost, "durable": True, "arguments": named}


def policy(name: str, pattern: str, *, vhost: str = "/", priority: int = 0, to: str = "queues",
           **definition: Any) -> dict[str, Any]:  # fmt: skip
    named = {key.replace("_", "-"): value for key, value in definition.items()}
    return {"name": name, "vhost": vhost, "pattern": pattern, "apply-to": to,
            "priority": priority, "definition": named}  # fmt: skip


def operator(**definition: Any) -> dict[str, Any]:
    value = policy("op", "^q$", **definition)
    return {"component": "operator_policy", "name": "op", "vhost": "/", "value": value}


def binding(source: str, to: str, key: str = "", vhost: str = "/") -> dict[str, Any]:
    return {"source": source, "vhost": vhost, "destination": to, "destination_type": "queue",
            "routing_key": key, "arguments": {}}  # fmt: skip
