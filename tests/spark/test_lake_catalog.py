"""The lake's tables and views in a catalog."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ringfaust.errors import BadSetting
from ringfaust.spark.lake import command, gold
from ringfaust.spark.lake.store import LakeError
from ringfaust.spark.lake.tables import TABLES
from ringfaust.spark.lake.views import VIEWS
from tests.spark.batched_lake import LAST, BatchedLake


def _registered(lake: BatchedLake, schema: str, name: str) -> Counter[Any]:
    return Counter(map(str, lake.spark.sql(f"SELECT * FROM {schema}.{name}").collect()))


def test_the_tables_are_registered_in_a_schema(stages: list[BatchedLake], tmp_path: Path) -> None:
    lake = stages[LAST].copy(tmp_path / "lake")
    schema = f"rings_{uuid.uuid4().hex[:6]}"
    for _ in range(2):  # as at each start
        command.register(lake.spark, lake.root, schema)
    for name in (*TABLES, *VIEWS):
        assert _registered(lake, schema, name) == lake.rows(name), name
    gold.close(lake.spark, lake.root, LAST - 1)
    for name in VIEWS:  # which were registered before that closing
        assert _registered(lake, schema, name) == lake.rows(name), name
    shutil.copytree(lake.root, tmp_path / "copied")
    with pytest.raises(
        LakeError, match=rf"cannot register {schema}\.bronze, which is the table at"
    ):
        command.register(lake.spark, str(tmp_path / "copied"), schema)


@pytest.mark.parametrize("name", ["", "a.b.c", "rings; DROP TABLE x", "my-rings", "rings."])
def test_a_name_that_is_no_schema_is_refused(name: str) -> None:
    with pytest.raises(BadSetting, match=r"use SCHEMA or CATALOG.SCHEMA, such as main.rings"):
        command.check_schema(name)
