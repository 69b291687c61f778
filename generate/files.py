"""All generated files. A test compares each with the code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from generate import commands_page, event_tables, rules_page, schemas, settings_page, versions
from generate.asyncapi import asyncapi
from ringfaust.config.queues import QueuesConfig
from ringfaust.config.worker import WorkerConfig
from ringfaust.console.openapi import openapi
from ringfaust.protocol.contracts import control_schema, event_schema, reply_schema

ROOT = Path(__file__).parents[1]

FILES: dict[str, Callable[[], str]] = {
    "config/queues.schema.json": partial(schemas.of_model, QueuesConfig),
    "config/worker.schema.json": partial(schemas.of_model, WorkerConfig),
    "docs/contracts/control.schema.json": lambda: schemas.json_text(control_schema()),
    "docs/contracts/replies.schema.json": lambda: schemas.json_text(reply_schema()),
    "docs/contracts/events.schema.json": lambda: schemas.json_text(event_schema()),
    "docs/contracts/asyncapi.json": lambda: schemas.json_text(asyncapi()),
    "docs/contracts/openapi.json": lambda: schemas.json_text(openapi()),
    **{
        schemas.output_file(command): partial(schemas.of_output, command)
        for command in schemas.OUTPUTS | schemas.REPORTS
    },
    "docs/cli.md": commands_page.page,
    "docs/protocol.md": event_tables.page,
    "docs/configuration.md": settings_page.page,
    "docs/rules.md": rules_page.page,
    **versions.FILES,
}
"""By path in the repository: the function that returns the text."""
