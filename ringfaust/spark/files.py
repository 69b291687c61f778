"""Small text files in a folder on any file system that Spark can reach.

Among them are Spark's own in the checkpoint of a Structured Streaming query.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from typing import Any

from pyspark.sql import SparkSession

from ringfaust.spark.vendor import hadoop_configuration, java_array, jvm
from ringfaust.times import wall_ms


class HadoopFolder:
    """A folder on a local disk, HDFS or an object store."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._hadoop = jvm(spark).org.apache.hadoop.fs
        self._path = self._hadoop.Path(path)
        self._files = self._path.getFileSystem(hadoop_configuration(spark))

    def exists(self) -> bool:
        """Whether there is such a folder."""
        return bool(self._files.exists(self._path))

    def uri(self) -> str:
        """The folder with the scheme and authority of its file system."""
        return str(self._files.makeQualified(self._path).toString()).rstrip("/")

    def stored_bytes(self) -> int:
        """The size of all files in the folder and below it."""
        return int(self._files.getContentSummary(self._path).getLength())

    def numbers(self, subfolder: str = "") -> list[int]:
        """The files whose names are numbers: their numbers, in no order."""
        path = self._at(subfolder) if subfolder else self._path
        if not self._files.exists(path):
            return []
        names = [status.getPath().getName() for status in self._files.listStatus(path)]
        return [int(name) for name in names if name.isdecimal()]

    def read_text(self, name: str) -> str | None:
        """A file's contents, or None if there is no such file."""
        path = self._at(name)
        if not self._files.exists(path):
            return None
        with closing(self._files.open(path)) as stream:
            return str(jvm(self._spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))

    def write_text(self, name: str, text: str) -> None:
        """Write a file completely or not at all; replace one that exists."""
        path = self._at(name)
        draft = self._hadoop.Path(path.getParent(), f".new-{path.getName()}")
        with closing(self._files.create(draft, True)) as stream:
            stream.write(bytearray(text.encode()))
        if not self._files.exists(path):
            self._files.rename(draft, path)
            return
        # FileSystem.rename does not replace a file. FileContext does, atomically, but not every
        # file system has it.
        options = getattr(self._hadoop, "Options$Rename")
        overwrite = java_array(self._spark, options, options.OVERWRITE)
        configuration = hadoop_configuration(self._spark)  # the default lacks Spark's settings
        context = self._hadoop.FileContext.getFileContext(path.toUri(), configuration)
        context.rename(draft, path, overwrite)

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._files.delete(self._at(name), False)

    def delete_folder(self, name: str) -> None:
        """Delete a subfolder, if it exists, and all that it holds."""
        self._files.delete(self._at(name), True)

    def _at(self, name: str) -> Any:
        return self._hadoop.Path(self._path, name)


def literal(path: str) -> str:
    """A path for a reader that would take characters of it for a pattern."""
    return re.sub(r"[][{}*?\\]", r"\\\g<0>", path)


def last_planned(spark: SparkSession, checkpoint: str) -> int:
    """Number of the last micro-batch that Spark has planned; -1: none."""
    return max(HadoopFolder(spark, checkpoint).numbers("offsets"), default=-1)


def last_committed(spark: SparkSession, checkpoint: str) -> int:
    """Number of the last micro-batch that Spark has committed; -1: none."""
    return max(HadoopFolder(spark, checkpoint).numbers("commits"), default=-1)


def is_finished(spark: SparkSession, checkpoint: str) -> bool:
    """Whether the last planned micro-batch, if any, has been committed."""
    return last_planned(spark, checkpoint) == last_committed(spark, checkpoint)


def planned_offsets(spark: SparkSession, checkpoint: str, batch: int) -> dict[str, dict[str, int]]:
    """By topic and partition, where a micro-batch ends; empty if it was not planned."""
    sources = planned_sources(spark, checkpoint, batch)
    return {topic: at for source in sources for topic, at in source.items()}


def planned_sources(
    spark: SparkSession, checkpoint: str, batch: int
) -> list[dict[str, dict[str, int]]]:
    """The same for each source of the query, in their order."""
    lines = (HadoopFolder(spark, checkpoint).read_text(f"offsets/{batch}") or "").splitlines()
    return [json.loads(line) if line.startswith("{") else {} for line in lines[2:]]


def initial_offsets(spark: SparkSession, checkpoint: str) -> dict[str, dict[str, int]]:
    """By topic and partition, where the query began; empty if it has not."""
    text = HadoopFolder(spark, checkpoint).read_text("sources/0/0") or "{}"
    found: dict[str, dict[str, int]] = json.loads(text[text.index("{") :])  # after the version
    return found


def plan_empty_batch(spark: SparkSession, checkpoint: str) -> None:
    """Let a query whose last micro-batch is committed begin with one that has no records.

    Spark plans none until the query has had a record since it was started, so all timers would
    wait for one.
    """
    folder, last = HadoopFolder(spark, checkpoint), last_planned(spark, checkpoint)
    version, about, *ends = (folder.read_text(f"offsets/{last}") or "").splitlines()
    about = json.dumps(json.loads(about) | {"batchTimestampMs": wall_ms()})
    folder.write_text(f"offsets/{last + 1}", "\n".join([version, about, *ends]))


def forget_first_offsets(spark: SparkSession, checkpoint: str) -> None:
    """Let a query that has planned no micro-batch begin where its options say.

    Spark keeps where each source begins before it plans the first micro-batch, and prefers that to
    `startingOffsets`.
    """
    HadoopFolder(spark, checkpoint).delete_folder("sources")


def committed_offsets(spark: SparkSession, checkpoint: str) -> dict[str, dict[str, int]]:
    """By topic and partition, how far the query has come; empty if there is no such query."""
    return planned_offsets(spark, checkpoint, last_committed(spark, checkpoint))
