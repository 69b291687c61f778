"""The Spark session of a job: the jars of Kafka and Delta, and settings for where it runs."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import ringfaust
from ringfaust.compiled import is_in_present_folder
from ringfaust.errors import BadSetting
from ringfaust.java.jars import fetch, spark_connectors
from ringfaust.java.runtime import find_java, without_second_collector
from ringfaust.spark.errors import SPARK_ERRORS, JobFailed, first_line

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_EMBEDDED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # With Spark's default of 1 GB the lake spends a tenth of its time on garbage collection.
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    # With Delta's default of 50, each commit takes seconds on a few cores.
    "spark.databricks.delta.snapshotPartitions": "2",
    # A batch of the lake has over 100 pieces of generated code. With Spark's default of 100 each
    # batch compiles them again, a sixth of the time of a tiny one.
    "spark.sql.codegen.cache.maxEntries": "1000",
}
"""Settings for one machine. Nothing listens beyond loopback."""
_UTC = {"spark.sql.session.timeZone": "UTC"}
_ALWAYS = {**_UTC, "spark.log.level": "ERROR"}

_DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_COLLECTOR = "-XX:+UseParallelGC"
"""With Java's default collector the lake takes a sixth more CPU time (ADR 56)."""

_SAFE_PATH = "spark.executorEnv.PYTHONSAFEPATH"
"""Python in the executors does not look into the present folder. Only the command line sets it: in
other sessions, functions of users may be there."""
_PACKAGE = r"[\w.-]+:[\w.-]+:[\w.-]+"
_given: dict[str, str] = {}
"""The settings that the command line names for the session of this process."""


def use_settings(conf: Sequence[str], packages: str | None) -> None:
    """Let `open_session` use these settings, which win over all others.

    `conf` are texts NAME=VALUE, and `packages` are GROUP:NAME:VERSION, separated by commas, which
    Spark fetches and loads.

    Raises:
        BadSetting: one of them is no such text.
    """
    _given.clear()
    if not is_in_present_folder():
        _given[_SAFE_PATH] = "1"
    for each in conf:
        name, equals, value = each.partition("=")
        if not (equals and name.startswith("spark.")):
            shown = f"{name}=…" if equals else name  # the value may be a secret
            raise BadSetting("conf", shown, "use NAME=VALUE, such as spark.executor.memory=4g")
        _given[name] = value
    if packages is not None:
        if not re.fullmatch(rf"{_PACKAGE}(,{_PACKAGE})*", packages):
            example = "org.apache.hadoop:hadoop-aws:3.4.1"
            raise BadSetting("packages", packages, f"use GROUP:NAME:VERSION, such as {example}")
        if _is_spark_submit():
            raise BadSetting("packages", packages, "give them to spark-submit, which has begun")
        _given["spark.jars.packages"] = packages


def open_session(
    name: str,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    runs_python: bool = True,
) -> SparkSession:
    """Return the session of this process; create it if there is none.

    Under spark-submit, master and jars are those given to spark-submit; else the default master is
    `local[2]`. The package is sent to the executors of a cluster, unless they have it; its
    dependencies must be installed there (docs/spark.md). `conf` wins over the defaults, and
    `use_settings` over both. `runs_python`: whether the tasks run functions of this package.

    Raises:
        NoJava: no suitable Java was found.
        UnsupportedSpark: no jars of Kafka and Delta are known for this PySpark.
        FetchFailed: the jars of Kafka and Delta are not in the cache and could not be downloaded.
        JobFailed: Spark does not start with this master or these settings.
    """
    settings = {**_DELTA, **_ALWAYS}
    if not _is_spark_submit():
        find_java()
        master = master or "local[2]"
        jars = fetch(spark_connectors(pyspark.__version__)).glob("*.jar")
        settings["spark.jars"] = ",".join(map(str, sorted(jars)))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        quiet = files("ringfaust.spark") / "log4j2.properties"
        settings["spark.driver.extraJavaOptions"] = (
            f"-Dlog4j2.configurationFile={quiet} {_collector()}"
        )
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            settings |= _EMBEDDED
    builder = SparkSession.builder.appName(name)
    if master:
        builder = builder.master(master)
    for key, value in (settings | dict(conf or {}) | _given).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
        is_cluster = not (session.sparkContext.master or "").startswith("local[")
        if runs_python and is_cluster and not executors_have_package(session):
            session.sparkContext.addPyFile(_zip_package())
    except SPARK_ERRORS as error:
        raise JobFailed(
            f"Spark does not start{f' with --master {master}' if master else ''}: "
            f"{first_line(error)} Use a master such as local[4], spark://HOST:7077 or yarn, and "
            "check --conf and --packages"
        ) from error
    return session


def executors_have_package(session: SparkSession) -> bool:
    """Whether this very package is installed where a task runs, perhaps compiled.

    What is sent would hide it there, and is never compiled.
    """

    # Spark sends a function inside another one as code, so this one runs without the package.
    def digest(_: object) -> str:
        from hashlib import sha256  # noqa: PLC0415
        from importlib.util import find_spec  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        spec = find_spec("ringfaust")
        if spec is None or spec.origin is None:
            return ""
        found = sha256()
        for path in sorted(Path(spec.origin).parent.rglob("*.py")):
            found.update(path.read_bytes())
        return found.hexdigest()

    return session.sparkContext.parallelize([0], 1).map(digest).first() == digest(0)


def _collector() -> str:
    """The collector of the driver's Java, unless another one is chosen: Java refuses two."""
    options = os.environ.get("SPARK_SUBMIT_OPTS"), _given.get(_DEFAULT_JAVA_OPTIONS)
    return "".join(without_second_collector([_COLLECTOR], *options))


def set_unless_given(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Set what a job needs in a session of its own, except what the command line sets.

    If another program has started Spark, such a session has the cluster's time zone.
    """
    for name, value in {**_UTC, **settings}.items():
        if name not in _given:
            session.conf.set(name, value)


def _zip_package() -> str:
    """Write this package to a zip file, for the executors of a cluster."""
    package = Path(ringfaust.__file__).parent
    folder = Path(tempfile.mkdtemp(prefix="ringfaust-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    name = str(folder / f"ringfaust-{ringfaust.__version__}")
    return shutil.make_archive(name, "zip", package.parent, package.name)


def _is_spark_submit() -> bool:
    """Whether spark-submit started this process, and so provides jars and master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
