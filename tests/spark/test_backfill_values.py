"""Values of files: a backfill sends each as it is, or says why not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ringfaust.spark.backfill.command import read_source
from ringfaust.spark.backfill.errors import CannotBackfill
from ringfaust.spark.backfill.mapping import RowMapping, map_rows
from ringfaust.spark.options import Format
from ringfaust.spark.vendor import jvm

AT = pd.Timestamp("2026-11-20T10:00:00.123456789")
BEFORE_1970 = pd.Timestamp("1969-12-31T23:59:59.000000001").value


def mapped(
    spark: SparkSession, path: Path, kind: Format, value: str | None = None
) -> tuple[list[str | None], list[str]]:
    """The values that a backfill would send, and the faults of bad rows."""
    rows = map_rows(read_source(spark, str(path), kind), RowMapping(value=value)).collect()
    sent = [row["value"] for row in rows if row["fault"] is None]
    values = [None if value is None else bytes(value).decode() for value in sent]
    return values, [row["fault"] for row in rows if row["fault"] is not None]


DIGITS = [
    (pa.array([AT.value], pa.timestamp("ns")), "2026-11-20T10:00:00.123456789"),
    (pa.array([AT.value], pa.timestamp("ns", "UTC")), "2026-11-20T10:00:00.123456789Z"),
    (pa.array([AT.value // 1000], pa.timestamp("us")), "2026-11-20T10:00:00.123456"),
    (pa.array([AT.value // 1000], pa.timestamp("us", "UTC")), "2026-11-20T10:00:00.123456Z"),
    (pa.array([AT.value // 10**6], pa.timestamp("ms")), "2026-11-20T10:00:00.123000"),
    (pa.array([BEFORE_1970], pa.timestamp("ns")), "1969-12-31T23:59:59.000000001"),
    (pa.array([-(2**63) + 1], pa.timestamp("ns")), "1677-09-21T00:12:43.145224193"),
    (pa.array([None], pa.timestamp("ns")), None),
    (
        pa.array([{"t": AT.value}], pa.struct({"t": pa.timestamp("ns")})),
        {"t": "2026-11-20T10:00:00.123456789"},
    ),
    (pa.array([None], pa.struct({"t": pa.timestamp("ns")})), None),
    (
        pa.array([[AT.value, None]], pa.list_(pa.timestamp("ns"))),
        ["2026-11-20T10:00:00.123456789", None],
    ),
    (
        pa.array([[("k", AT.value)]], pa.map_(pa.string(), pa.timestamp("ns", "UTC"))),
        {"k": "2026-11-20T10:00:00.123456789Z"},
    ),
    (
        pa.array(
            [[{"t": AT.value, "n": 1}]],
            pa.list_(pa.struct({"t": pa.timestamp("ns"), "n": pa.int64()})),
        ),
        [{"t": "2026-11-20T10:00:00.123456789", "n": 1}],
    ),
    (pa.array([AT.value // 1000 * 1000], pa.int64()), AT.value // 1000 * 1000),
    (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
    (pa.array([b"\xff"], pa.binary()), "/w=="),
    (pa.nulls(1), None),
]


def test_parquet_keeps_each_digit(spark: SparkSession, tmp_path: Path) -> None:
    """Each column is read by itself."""
    columns = {f"at{number}": array for number, (array, _) in enumerate(DIGITS)}
    pq.write_table(pa.table(columns), tmp_path / "tide.parquet")
    (value,), faults = mapped(spark, tmp_path / "tide.parquet", Format.PARQUET)
    expected = {f"at{number}": sent for number, (_, sent) in enumerate(DIGITS)}
    assert (json.loads(value), faults) == (expected, [])


OLD_LISTS = {
    "group": "optional group at (LIST) { repeated group array { required int64 t "
    "(TIMESTAMP(NANOS,true)); required int32 n; } }",
    "no list type": "repeated group at { required int64 t (TIMESTAMP(NANOS,true)); "
    "required int32 n; }",
}
"""Lists as programs wrote them before there was a standard, or without one."""


@pytest.mark.parametrize("schema", OLD_LISTS.values(), ids=OLD_LISTS)
def test_old_lists_of_parquet_keep_each_digit(
    spark: SparkSession, tmp_path: Path, schema: str
) -> None:
    path = tmp_path / "tide.parquet"
    java = jvm(spark).org.apache.parquet
    kind = java.schema.MessageTypeParser.parseMessageType(f"message tide {{ {schema} }}")
    row = java.example.data.simple.SimpleGroup(kind)
    at = row.addGroup("at")
    item = at.addGroup("array") if "LIST" in schema else at
    item.append("t", AT.value).append("n", 7)
    writer = java.hadoop.example.ExampleParquetWriter.builder(
        jvm(spark).org.apache.hadoop.fs.Path(str(path))
    )
    writer = writer.withType(kind).build()
    writer.write(row)
    writer.close()
    (value,), faults = mapped(spark, path, Format.PARQUET)
    sent = {"at": [{"t": "2026-11-20T10:00:00.123456789Z", "n": 7}]}
    assert (json.loads(value or ""), faults) == (sent, [])


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        (pa.time64("us"), {}, "column at has a time of day, .* write it as text"),
        (pa.time64("ns"), {}, "column at has a time of day"),
        (pa.time32("ms"), {}, "column at has a time of day"),
        (pa.float16(), {}, "column at has a FLOAT16, .* write it as FLOAT"),
        (
            pa.timestamp("ns"),
            {"use_deprecated_int96_timestamps": True},
            "column at has times as INT96, .* microseconds only: write it as TIMESTAMP",
        ),
        (pa.list_(pa.time64("us")), {}, "column at.list.element has a time of day"),
    ],
    ids=str,
)
def test_parquet_that_spark_cannot_keep_is_refused(
    spark: SparkSession, tmp_path: Path, kind: pa.DataType, options: dict[str, bool], text: str
) -> None:
    pq.write_table(pa.table({"at": pa.nulls(1, kind)}), tmp_path / "tide.parquet", **options)
    with pytest.raises(CannotBackfill, match=text):
        mapped(spark, tmp_path / "tide.parquet", Format.PARQUET)


def test_a_nanosecond_column_gives_the_time_of_its_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "tide.parquet"
    pd.DataFrame({"id": ["a"], "at": [AT]}).to_parquet(path)
    rows = map_rows(read_source(spark, str(path), Format.PARQUET), RowMapping(timestamp="at"))
    assert [row["timestamp_ms"] for row in rows.collect()] == [AT.value // 10**6]


def test_parquet_files_of_a_folder_keep_all_their_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, table in {"a": {"x": [1]}, "b": {"x": [2], "y": [3]}}.items():
        (tmp_path / f"day=00{name}").mkdir()
        pq.write_table(pa.table(table), tmp_path / f"day=00{name}" / "part.parquet")
    values, _ = mapped(spark, tmp_path, Format.PARQUET)
    assert sorted(values) == ['{"x":1,"y":null,"day":"00a"}', '{"x":2,"y":3,"day":"00b"}']


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ns"), pa.int64()),
        (pa.int64(), pa.string()),
    ],
    ids=str,
)
def test_parquet_files_with_other_types_are_refused(
    spark: SparkSession, tmp_path: Path, one: pa.DataType, other: pa.DataType
) -> None:
    for number, kind in enumerate((one, other)):
        pq.write_table(pa.table({"at": pa.nulls(1, kind)}), tmp_path / f"{number}.parquet")
    with pytest.raises(
        CannotBackfill, match="column at is .* in another: backfill them one by one"
    ):
        mapped(spark, tmp_path, Format.PARQUET)


@pytest.mark.parametrize(("kind", "content"), [(Format.JSON, b""), (Format.CSV, b"a,b\r\n")])
def test_a_file_without_rows_sends_nothing(
    spark: SparkSession, tmp_path: Path, kind: Format, content: bytes
) -> None:
    (tmp_path / "empty").write_bytes(content)
    assert mapped(spark, tmp_path / "empty", kind) == ([], [])


def test_a_folder_without_files_sends_nothing(spark: SparkSession, tmp_path: Path) -> None:
    assert mapped(spark, tmp_path, Format.JSON) == ([], [])


LINES = {
    "whole and fraction": ['{"n": 1}', '{"n": 1.50}', '{"n": 9007199254740993}'],
    "mixed": ['{"n": 1}', '{"n": "x"}', '{"n": true}', '{"n": {"a": 1.0}}', '{"n": [1, "1"]}'],
    "beyond every type": ['{"n": 1e400}', '{"n": -0}', f'{{"n": {"9" * 5000}}}', '{"n": 0.1e-9}'],
    "null and missing": ['{"n": null}', "{}", '{"m": 1}'],
    "escapes": ['{"n": "\\u00e9\\n\\u0000\\ud83d\\ude00"}', '{ "n" :\t"é" }'],
    "names by case": ['{"n": 1, "N": 2}', '{"": 3, "a.b": 4, "a`b": 5}'],
    "empty": ['{"n": {}}', '{"n": []}', '{"n": [null]}', '{"n": ""}'],
    "deep": ['{"n": ' + "[" * 60 + "1.0" + "]" * 60 + "}"],
}


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_json_is_sent_as_its_line(spark: SparkSession, tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "lines.json"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n\n".join([*lines, "  \n"]).encode())
    assert mapped(spark, path, Format.JSON) == (lines, [])


@pytest.mark.parametrize(
    ("lines", "sent"),
    [
        (['{"n": 1}', '{"n": 1.50}', '{"n": 9007199254740993}'], ["1", "1.50", "9007199254740993"]),
        (['{"n": 1}', '{"n": "x"}', '{"n": true}'], ["1", "x", "true"]),
        (['{"n": 1e400}', '{"n": -0}'], ["1e400", "-0"]),
        (['{"n": 7}', f'{{"n": {2**63}}}'], ["7", f"{2**63}"]),
        ([f'{{"n": {2**63 - 1}}}', f'{{"n": {-(2**63)}}}'], [f"{2**63 - 1}", f"{-(2**63)}"]),
        (['{"n": {"a": 1.50, "b": 1}}', '{"n": {"b": "1"}}'], ['{"a":1.50,"b":1}', '{"b":"1"}']),
        (['{"n": [1, 2.50, "3"]}', '{"n": 1}'], ['[1,2.50,"3"]', "1"]),
        (['{"n": [1]}', '{"n": null}', "{}"], ["[1]", None, None]),
    ],
)
def test_a_column_of_json_has_the_text_of_its_lines(
    spark: SparkSession, tmp_path: Path, lines: list[str], sent: list[str | None]
) -> None:
    (tmp_path / "lines.json").write_text("\n".join(lines))
    assert mapped(spark, tmp_path / "lines.json", Format.JSON, "n") == (sent, [])


def test_json_with_one_type_is_calculated_with(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "lines.json"
    path.write_text('{"n": 9, "s": {"k": 1.50, "m": 2}}\n{"n": 10, "s": {"k": 2, "m": 3}}')
    assert mapped(spark, path, Format.JSON, "n > 9")[0] == ["false", "true"]
    assert mapped(spark, path, Format.JSON, "s.k")[0] == ["1.50", "2"]
    assert mapped(spark, path, Format.JSON, "cast(s.k AS double) + s.m")[0] == ["3.5", "5.0"]
    with pytest.raises(CannotBackfill, match=r"--value: 'array\(s\)' is a part of a line"):
        mapped(spark, path, Format.JSON, "array(s)")


def test_json_gets_the_columns_of_its_folders(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "day=007").mkdir()
    (tmp_path / "day=007" / "lines.json").write_text('{"n": 1.0}\n{}\n{"day": 7}')
    values, (fault,) = mapped(spark, tmp_path, Format.JSON)
    assert values == ['{"n": 1.0,"day":"007"}', '{"day":"007"}']
    assert "column 'day' is also the name of a folder: rename one" in fault


UNREADABLE = [
    (b'{"n": 1, "n": 2}', "column 'n' is there twice: keep one"),
    (b'{"n": NaN}', "NaN is no number in JSON: write null, or a text in quotes"),
    (b'{"n": -Infinity}', "-Infinity is no number"),
    (b'{"n": "\\ud800"}', "half a surrogate pair is no character"),
    (b'{"n": "\xff"}', "not UTF-8: save the file as UTF-8"),
    (b'{"n": ' + b"[" * 100_000, "nest fewer"),
    (b'{"n": ' + b"[" * 700 + b"]" * 700 + b"}", "nest fewer"),
    (b'[{"n": 1}, {"n": 2}]', "not an object: write one JSON object per line"),
    (b"null", "not an object"),
    (b'{"n": 1}{"n": 2}', "Extra data: .* write one JSON object per line"),
    (b"{'n': 1}", "write one JSON object per line"),
    (b'{"n": 01}', "write one JSON object per line"),
    (b'{"n": 1} // one', "write one JSON object per line"),
    (b'{"n": "a\tb"}', "Invalid control character"),
    (b"{oh", "write one JSON object per line"),
]


def test_a_line_of_json_that_cannot_be_kept_is_a_bad_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The lines before it and after it are kept."""
    good = [b'{"n": %d}' % number for number in range(len(UNREADABLE) + 1)]
    bad = [line for line, _ in UNREADABLE]
    lines = [each for pair in zip(good, bad, strict=False) for each in pair]
    path = tmp_path / "lines.json"
    path.write_bytes(b"\n".join([*lines, good[-1]]))
    values, faults = mapped(spark, path, Format.JSON)
    assert values == [line.decode() for line in good]
    for fault, (line, text) in zip(faults, UNREADABLE, strict=True):
        shown = line.decode("utf-8", "backslashreplace")[:200]
        assert fault.startswith(f"an unreadable line: {shown}")
        assert re.search(text, fault), fault
