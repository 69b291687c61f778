"""Rewriting the files of past days, so that readers of one queue open few of them.

The streams add files for today. A day is rewritten once it is over, and again only if rows were
added to it since.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from datetime import date

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake.tables import LakeTable, path, read

FILE_BYTES = 128 << 20
"""The size of a clustered file: the smaller, the less a reader of one queue reads."""


def cluster(spark: SparkSession, root: str, table: LakeTable, before: date) -> None:
    """Sort the rows of days before one that may still change into files by `cluster_by`."""
    marks = HadoopFolder(spark, f"{root.rstrip('/')}/state/clustered")
    done: dict[str, str] = json.loads(marks.read_text(table.name) or "{}")
    for day, digest in _digests(spark, root, table, before).items():
        if done.get(day) != digest:
            optimize = DeltaTable.forPath(spark, path(root, table.name)).optimize()
            optimize.where(f"{table.day} = DATE '{day}'").executeZOrderBy(*table.cluster_by)
    marks.write_text(table.name, json.dumps(_digests(spark, root, table, before)))


def _digests(spark: SparkSession, root: str, table: LakeTable, before: date) -> dict[str, str]:
    """By day, a digest of the names of its files."""
    assert table.day, "a clustered table is partitioned by day"
    files = read(spark, root, table.name).where(F.col(table.day) < F.lit(before)).inputFiles()
    by_day: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        day = re.search(rf"/{table.day}=(\d{{4}}-\d\d-\d\d)/", file)
        if day:
            by_day[day[1]].append(file.rpartition("/")[2])
    return {
        day: hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]
        for day, names in sorted(by_day.items())
    }
