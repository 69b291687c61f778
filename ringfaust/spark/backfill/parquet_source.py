"""Read Parquet with all digits of its times; what Spark cannot read exactly is refused."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ringfaust.spark.backfill.errors import CannotBackfill
from ringfaust.spark.backfill.mapping import LINE, quoted
from ringfaust.spark.errors import SPARK_ERRORS
from ringfaust.spark.vendor import hadoop_configuration, jvm

Path = tuple[str, ...]
"""Where a value is in a row: ("at",), or ("stops", "list", "element", "at")."""

_NANOS = "INT64 (TIMESTAMP(NANOS"
_REMEDIES = {
    "INT96": (
        "times as INT96, of which Spark reads microseconds only: write it as TIMESTAMP "
        "(with pandas or pyarrow: without use_deprecated_int96_timestamps or flavor='spark')"
    ),
    "TIME(": "a time of day, which Spark does not read: write it as text",
    "FLOAT16": "a FLOAT16, which Spark does not read: write it as FLOAT",
    "INTERVAL": "an INTERVAL, which Spark does not read: write it as text or a number",
}
_BY_SPARK = "org.apache.spark.version"
_FOOTERS_AT_ONCE = 8


def read_parquet(spark: SparkSession, path: str) -> DataFrame:
    """The rows; a time in nanoseconds is text, such as 2026-11-20T10:00:00.123456789Z.

    Raises:
        CannotBackfill: Spark would not keep the values of a column, or read none.
    """
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    files = spark.read.schema(f"{LINE} string").text(path).inputFiles()
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        schemas = set(pool.map(lambda file: _read_schema(spark, file), files))
    kinds: dict[Path, str] = {}
    mixed: dict[Path, str] = {}
    for columns, is_by_spark in schemas:
        for where, kind in columns:
            for sign, remedy in _REMEDIES.items():
                # Spark itself writes INT96, with microseconds.
                if sign in kind and not (sign == "INT96" and is_by_spark):
                    raise CannotBackfill("SOURCE", f"column {'.'.join(where)} has {remedy}")
            if kinds.setdefault(where, kind) != kind:
                mixed[where] = (
                    f"column {'.'.join(where)} is {kinds[where]} in one file and {kind} in "
                    "another: backfill them one by one"
                )
                if _NANOS in f"{kind} {kinds[where]}":
                    raise CannotBackfill("SOURCE", mixed[where])
    nanos = {where: kind.endswith("true))") for where, kind in kinds.items() if _NANOS in kind}
    try:
        rows = spark.read.option("mergeSchema", "true").parquet(path)
    except SPARK_ERRORS:
        if not mixed:
            raise
        raise CannotBackfill("SOURCE", "; ".join(mixed.values())) from None
    return rows.select(
        *(
            _with_digits(F.col(quoted(each.name)), each.dataType, _below(nanos, each.name))
            .alias(each.name)
            for each in rows.schema
        )
    )  # fmt: skip


def _read_schema(spark: SparkSession, file: str) -> tuple[frozenset[tuple[Path, str]], bool]:
    """The schema in a file's footer, which tells more than Spark's, and whether Spark wrote it.

    Each value has its type, such as "INT64 (TIMESTAMP(NANOS,true))".
    """
    java = jvm(spark)
    where = java.org.apache.hadoop.fs.Path(java.java.net.URI(file))
    hadoop = java.org.apache.parquet.hadoop
    source = hadoop.util.HadoopInputFile.fromPath(where, hadoop_configuration(spark))
    with closing(hadoop.ParquetFileReader.open(source)) as reader:
        about = reader.getFooter().getFileMetaData()
    kinds = set()
    for column in about.getSchema().getColumns():
        kind = column.getPrimitiveType()
        name = kind.getPrimitiveTypeName().toString()
        kinds.add((tuple(column.getPath()), f"{name} ({kind.getLogicalTypeAnnotation()})"))
    return frozenset(kinds), bool(about.getKeyValueMetaData().containsKey(_BY_SPARK))


def _below(nanos: Mapping[Path, bool], *names: str | None) -> dict[Path, bool]:
    """Return the paths below a value, relative to it; None matches any name."""
    return {
        path[len(names) :]: is_utc
        for path, is_utc in nanos.items()
        if len(path) >= len(names)
        and all(
            name in (None, found) for name, found in zip(names, path[: len(names)], strict=True)
        )
    }


def _in_list(nanos: Mapping[Path, bool], element: T.DataType) -> dict[Path, bool]:
    """Return the paths below the elements of a list, relative to an element.

    Files have two names for the levels of a list. Old ones have one, and a field that is repeated
    without being a list has none.
    """
    found = {}
    for path, is_utc in nanos.items():
        for names in (2, 1, 0):
            if names <= len(path) and _leads_into(path[names:], element):
                found[path[names:]] = is_utc
                break
    return found


def _leads_into(path: Path, kind: T.DataType) -> bool:
    """Whether a path is that of a single value in a type."""
    if isinstance(kind, T.StructType):
        return path[:1] in [(name,) for name in kind.names] and _leads_into(
            path[1:], kind[path[0]].dataType
        )
    if isinstance(kind, T.ArrayType):
        return bool(_in_list({path: True}, kind.elementType))
    if isinstance(kind, T.MapType):
        part = {"key": kind.keyType, "value": kind.valueType}.get(path[1]) if path[1:] else None
        return part is not None and _leads_into(path[2:], part)
    return not path


def _with_digits(column: Column, kind: T.DataType, nanos: Mapping[Path, bool]) -> Column:
    """The value with the nanoseconds in it as text; `nanos` says where, and whether it is UTC."""
    if not nanos:
        return column
    if isinstance(kind, T.StructType):
        fields = (
            _with_digits(column[each.name], each.dataType, _below(nanos, each.name))
            .alias(each.name)
            for each in kind
        )  # fmt: skip
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, T.ArrayType):
        element, within = kind.elementType, _in_list(nanos, kind.elementType)
        return F.transform(column, lambda each: _with_digits(each, element, within))
    if isinstance(kind, T.MapType):
        of_key, of_value = _below(nanos, None, "key"), _below(nanos, None, "value")
        key, value = kind.keyType, kind.valueType
        column = F.transform_keys(column, lambda each, _: _with_digits(each, key, of_key))
        return F.transform_values(column, lambda _, each: _with_digits(each, value, of_value))
    (is_utc,) = nanos.values()
    # Whole numbers throughout: a double would lose the last digits.
    per_s = F.lit(1_000_000_000)
    seconds = F.call_function("div", column, per_s) - (column % per_s < 0).cast("long")
    return F.concat(
        F.date_format(F.timestamp_seconds(seconds), "yyyy-MM-dd'T'HH:mm:ss."),
        F.lpad(F.pmod(column, per_s).cast("string"), 9, "0"),
        F.lit("Z" if is_utc else ""),
    )
