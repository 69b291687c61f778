"""Registering the lake's tables in Spark's catalog: Hive, Glue, Unity or another one."""

from __future__ import annotations

import re

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ringfaust.errors import BadSetting
from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake.store import LakeError
from ringfaust.spark.lake.tables import TABLES, last_closing, path
from ringfaust.spark.lake.views import ENDED_ON, VIEWS, view

_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"


def check_schema(name: str) -> str:
    """Check the name of a schema, before Spark starts.

    Raises:
        BadSetting: it is neither SCHEMA nor CATALOG.SCHEMA.
    """
    if not re.fullmatch(rf"{_NAME}(\.{_NAME})?", name):
        raise BadSetting("catalog", name, "use SCHEMA or CATALOG.SCHEMA, such as main.rings")
    return name


def register(spark: SparkSession, root: str, schema: str) -> None:
    """Register all tables and views in a schema, which is created if necessary.

    Raises:
        LakeError: the schema has a table of that name at another place.
    """
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    for table in TABLES:
        name, folder = f"{schema}.{table}", path(root, table)
        place = HadoopFolder(spark, folder).uri()
        quoted = place.replace("\\", "\\\\").replace("'", "\\'")
        spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{quoted}'")
        found = DeltaTable.forName(spark, name).detail().select("location").collect()[0][0]
        if found.rstrip("/") != place:
            raise LakeError(
                root,
                f"cannot register {name}, which is the table at {found}: give another schema with "
                "--catalog, or drop that table",
            )
    register_views(spark, root, schema)


def register_views(spark: SparkSession, root: str, schema: str) -> None:
    """Register the views. They are right after later closings, too, and fastest if done again."""
    since = {}
    for table in ENDED_ON:
        # The query finds the last closing itself. The number as it is now lets it skip files.
        closed = f"(SELECT coalesce(max(batch), -1) FROM {schema}.{table})"
        since[table] = f"batch > {last_closing(spark, root, table)} AND batch > {closed}"
    for name in VIEWS:
        query = view(name, lambda table: f"{schema}.{table}", since)
        spark.sql(f"CREATE OR REPLACE VIEW {schema}.{name} AS {query}")
