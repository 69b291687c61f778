"""The JSON Schemas in config/."""

from __future__ import annotations

import json

import pytest

from ringfaust.config.documents import read, shipped
from ringfaust.core.settings import FIELD_NAMES


@pytest.mark.parametrize("name", ["queues.schema.json", "worker.schema.json"])
def test_the_shipped_file_names_its_schema_and_uses_only_known_settings(name: str) -> None:
    schema = json.loads((shipped("config") / name).read_text("utf-8"))
    path = shipped("config") / name.replace(".schema.json", ".yaml")
    assert path.read_text("utf-8").startswith(f"# yaml-language-server: $schema={name}\n")
    assert read(path).data.keys() <= schema["properties"].keys()
    assert schema["additionalProperties"] is False


def test_the_schema_knows_every_field_of_a_queue() -> None:
    schema = (shipped("config") / "queues.schema.json").read_text("utf-8")
    assert all(f'"{name}": {{' in schema for name in FIELD_NAMES)
