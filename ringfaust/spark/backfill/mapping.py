"""Map rows to the parts of a record. Everything here runs in the JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ringfaust.errors import suggestion
from ringfaust.protocol import headers as h
from ringfaust.spark.backfill.errors import CannotBackfill
from ringfaust.spark.errors import first_line
from ringfaust.spark.vendor import is_deterministic

# Columns that the readers of a source add to its own.
FAULT = "_ringfaust_fault"
"""Why a row cannot be kept: the row, the column and the remedy. Null for all other rows."""
TEXT = "_ringfaust_text"
"""The bytes of a row of CSV that cannot be kept. Null for all other rows."""
LINE = "_ringfaust_line"
"""The bytes of a line; in JSON they are the whole row."""
NESTED = "_ringfaust_nested"
"""The objects and lists of a line in JSON, by column, as the line has them."""
OWN = (FAULT, TEXT, LINE, NESTED)
SHOWN_CHARS = 200
"""Characters of a value that an error shows."""


def quoted(name: str) -> str:
    """A column's name in Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


PRODUCER_HEADERS = (
    h.ID, h.PRIORITY, h.GROUP, h.DELAY_MS, h.DELIVER_AT_MS, h.TTL_MS, h.EXPIRES_AT_MS, h.QUEUE,
    h.PROPERTIES, h.DELIVERY_MODE,
)  # fmt: skip
"""The ringfaust headers that a producer may set (docs/protocol.md)."""

HEADERS = T.ArrayType(
    T.StructType(
        [T.StructField("name", T.StringType(), False), T.StructField("value", T.BinaryType())]
    ),
    False,
)
_AS_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's own formats would cut times to milliseconds."""
ROW_BYTES = 1_000_000
"""How much of a row that cannot be read goes to the folder of bad rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMapping:
    """A column or SQL expression for each part of a record."""

    key: str | None = None
    """None: the records have no key."""
    value: str | None = None
    """None: the line of JSON, or else the whole row as a JSON object, nulls included."""
    timestamp: str | None = None
    """A timestamp, a date, ISO text, or ms since 1970; None: the time of writing."""
    headers: Sequence[tuple[str, str]] = ()
    """Name and expression; a record has no header whose expression is null."""

    def describe(self) -> str:
        """The mapping as on the command line; equal for equal mappings."""
        parts = [("--key", self.key), ("--value", self.value), ("--timestamp", self.timestamp)]
        parts += [("--header", f"{name}={text}") for name, text in self.headers]
        return " ".join(f"{name} {text!r}" for name, text in parts if text is not None)


def map_rows(rows: DataFrame, mapping: RowMapping) -> DataFrame:
    """Map rows to key, value, headers and timestamp_ms, with `what` and `fault` for bad rows.

    The value of a row that cannot be read is its text, up to `ROW_BYTES`.

    Raises:
        CannotBackfill: an expression does not fit the rows.
    """
    for name, _ in mapping.headers:
        if name.startswith(h.PREFIX) and name not in PRODUCER_HEADERS:
            known = suggestion(name, PRODUCER_HEADERS)
            raise CannotBackfill("--header", f"producers cannot set {name}; {known}")
    key = _bytes(rows, "--key", mapping.key) if mapping.key else F.lit(None).cast("binary")
    value = _bytes(rows, "--value", mapping.value) if mapping.value else _whole_row(rows)
    pairs = [
        F.struct(F.lit(name).alias("name"), _bytes(rows, f"--header {name}", text).alias("value"))
        for name, text in mapping.headers
    ]
    headers = F.filter(F.array(*pairs), lambda pair: pair["value"].isNotNull())
    timestamp_ms, no_time = _time(rows, mapping.timestamp)
    no_row, text_of_row = _unreadable(rows)
    what = F.when(no_row.isNotNull(), "row").when(no_time.isNotNull(), "timestamp")
    mapped = rows.select(
        key.alias("key"),
        F.when(no_row.isNull(), value).otherwise(text_of_row).alias("value"),
        # Never null: each null list on the way to Python costs as much as all lists before it in
        # the batch (Arrow rewrites their offsets each time Spark asks for the size).
        (headers if pairs else F.array()).cast(HEADERS).alias("headers"),
        timestamp_ms.alias("timestamp_ms"),
        what.alias("what"),
        F.coalesce(no_row, no_time).alias("fault"),
    )
    # Spark considers current_timestamp() and the like deterministic; the fingerprint detects them.
    if not is_deterministic(mapped):
        raise CannotBackfill(
            "mapping",
            "an expression returns other values each time (rand, uuid, "
            "monotonically_increasing_id …), so there is no way to know which rows are already "
            "written: make such a column part of the source first",
        )
    return mapped


def _column(rows: DataFrame, option: str, text: str) -> tuple[Column, T.DataType]:
    """The column or expression, and its type."""
    try:
        column = F.col(quoted(text)) if text in rows.columns else F.expr(text)
        # In a struct beside the row's columns, as an aggregate or a generator is none of one row.
        of_row = rows.select(F.struct(column.alias("it")).alias("of_row"), F.struct("*"))
        kind = of_row.select("of_row.it").schema["it"].dataType
    except PySparkException as error:
        known = ", ".join(name for name in rows.columns if name not in OWN)
        raise CannotBackfill(
            option, f"{text!r} is not a column or SQL expression of one row: {first_line(error)} "
            f"Columns: {known}",
        ) from None  # fmt: skip

    # Not evaluated for unreadable lines, where it might fail.
    return (F.when(F.col(FAULT).isNull(), column) if FAULT in rows.columns else column), kind


def _bytes(rows: DataFrame, option: str, text: str) -> Column:
    """The value as bytes: binary is unchanged, nested types become JSON, all others UTF-8 text."""
    column, kind = _column(rows, option, text)
    if isinstance(kind, T.BinaryType):
        return column
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType):
        if LINE not in rows.columns:
            column = F.to_json(column, _AS_JSON)
        elif text in rows.columns:
            column = F.col(NESTED)[text]
        else:
            raise CannotBackfill(
                option,
                f"{text!r} is a part of a line with more than one value, and the numbers in it "
                "might change: use a whole column, a single value, or to_json(…) if they may",
            )
    return column.cast("string").cast("binary")


def _whole_row(rows: DataFrame) -> Column:
    if LINE in rows.columns:
        return F.col(LINE)
    names = [quoted(name) for name in rows.columns if name not in OWN]
    return F.to_json(F.struct(*names), _AS_JSON).cast("binary")


def _time(rows: DataFrame, text: str | None) -> tuple[Column, Column]:
    """Milliseconds since 1970, and a fault where the value is no time."""
    if text is None:
        return F.lit(None).cast("long"), F.lit(None).cast("string")
    column, kind = _column(rows, "--timestamp", text)
    if isinstance(kind, T.IntegralType):
        time_ms = column.cast("long")
    elif isinstance(kind, T.TimestampType | T.TimestampNTZType | T.DateType | T.StringType):
        time_ms = F.unix_millis(column.try_cast("timestamp"))
    else:
        raise CannotBackfill(
            "--timestamp",
            f"{text!r} is {kind.simpleString()}: use a timestamp, a date, text such as "
            "2013-01-01T05:15:00Z, or whole milliseconds since 1970",
        )
    shown = F.substring(F.coalesce(column.cast("string"), F.lit("null")), 1, SHOWN_CHARS)
    fault = F.concat(F.lit(f"{text} = "), shown, F.lit(": not a time such as 2013-01-01T05:15:00Z"))
    return time_ms, F.when(time_ms.isNull(), fault)


def _unreadable(rows: DataFrame) -> tuple[Column, Column]:
    """The fault of a row that cannot be read, and its text."""
    if FAULT not in rows.columns:
        return F.lit(None).cast("string"), F.lit(None).cast("binary")
    text = F.substring(F.col(TEXT if TEXT in rows.columns else LINE), 1, ROW_BYTES)
    return F.concat(F.lit("an unreadable line: "), F.col(FAULT)), text
