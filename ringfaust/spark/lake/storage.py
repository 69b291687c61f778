"""Where a lake is, for code that opens its files without Spark: a local disk or S3.

Files and commits go through delta-rs there. Spark's tasks load this module.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, LocalFileSystem, PyFileSystem, SubTreeFileSystem
from pyspark.sql import SparkSession

from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake.tables import BRONZE, LakeTable, path
from ringfaust.spark.vendor import hadoop_configuration

log = logging.getLogger(__name__)
_S3 = ("s3", "s3a")
_SETTINGS = {
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
    "endpoint.region": "aws_region",
}
"""Hadoop's settings of S3, without `fs.s3a.`, and those of delta-rs with the same values."""
_LOG_STORES = ("class", *(f"{scheme}.impl" for scheme in _S3))
_SINGLE_DRIVER = "S3SingleDriverLogStore"
"""Spark's default on S3: it takes no lock that a commit of delta-rs would have to take, too."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A lake's folder or URI, and how to open it.

    Args:
        root: a path, or a URI of S3.
        options: those of `deltalake.DeltaTable`, in pairs. What is missing, such as credentials,
            comes from the environment.
    """

    root: str
    options: tuple[tuple[str, str], ...] = ()

    def open(self, table: LakeTable) -> DeltaTable:
        """A table as it is now.

        Raises:
            DeltaError: there is no such table, or it cannot be opened.
            OSError: the storage does not answer, or refuses the credentials.
        """
        return DeltaTable(path(self.root, table.name), storage_options=dict(self.options))

    def files(self, table: LakeTable) -> FileSystem:
        """The files in a table's folder."""
        folder = path(self.root, table.name)
        if "://" in folder:
            return PyFileSystem(DeltaStorageHandler(folder, options=dict(self.options)))
        return SubTreeFileSystem(folder, LocalFileSystem())


def find_storage(spark: SparkSession, root: str) -> Storage | None:
    """How to open a lake without Spark; None if only Spark can.

    Args:
        spark: the session. Its settings `fs.s3a.…` and the environment have the credentials.
        root: the lake's folder or URI. Its tables exist.
    """
    folder = HadoopFolder(spark, root)
    local = folder.local_path()
    if local is not None:
        return Storage(local)
    uri = folder.uri()
    scheme, _, rest = uri.partition("://")
    if scheme not in _S3 or _has_own_log_store(spark):
        return None
    found = Storage(uri, _s3_options(hadoop_configuration(spark), rest.partition("/")[0]))
    return found if _can_open(found) else None


def _has_own_log_store(spark: SparkSession) -> bool:
    """Whether Spark commits in a way that delta-rs does not know: DynamoDB, Databricks' service."""
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return True
    stores = [spark.conf.get(f"spark.delta.logStore.{name}", None) for name in _LOG_STORES]
    return any(store and not store.endswith(_SINGLE_DRIVER) for store in stores)


def _s3_options(hadoop: Any, bucket: str) -> tuple[tuple[str, str], ...]:
    def get(name: str) -> str | None:
        found: str | None = hadoop.get(f"fs.s3a.bucket.{bucket}.{name}")
        return found or hadoop.get(f"fs.s3a.{name}")

    options = {option: value for name, option in _SETTINGS.items() if (value := get(name))}
    if endpoint := get("endpoint"):
        if "://" not in endpoint:
            is_plain = get("connection.ssl.enabled") == "false"
            endpoint = f"{'http' if is_plain else 'https'}://{endpoint}"
        options["aws_endpoint_url"] = endpoint
        options["aws_allow_http"] = str(endpoint.startswith("http://")).lower()
    return tuple(options.items())


@cache
def _can_open(storage: Storage) -> bool:
    """Try it once: to find out that there are no credentials may take a minute."""
    try:
        storage.open(BRONZE)
    except (DeltaError, OSError) as error:
        log.warning(
            "Spark alone writes the lake at %s, which takes three times as long: delta-rs cannot "
            "open it (%s). Set fs.s3a.access.key, fs.s3a.secret.key and fs.s3a.endpoint.region, "
            "or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION in the environment",
            storage.root,
            error,
        )
        return False
    return True
