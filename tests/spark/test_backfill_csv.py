"""CSV as RFC 4180 has it: each record is sent with its values, or a row says why not."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ringfaust.spark.backfill import csv_source, mapping
from ringfaust.spark.backfill.command import read_source
from ringfaust.spark.backfill.csv_source import csv_rows
from ringfaust.spark.backfill.errors import CannotBackfill
from ringfaust.spark.backfill.mapping import FAULT, TEXT, RowMapping, map_rows
from ringfaust.spark.options import Format


def mapped(spark: SparkSession, path: Path) -> tuple[list[dict[str, object]], list[str]]:
    """The values that a backfill would send, and the faults of bad rows."""
    rows = map_rows(read_source(spark, str(path), Format.CSV), RowMapping()).collect()
    values = [json.loads(row["value"]) for row in rows if row["fault"] is None]
    return values, [row["fault"] for row in rows if row["fault"] is not None]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (
            'id,text\n1,"say ""hi"" now"\n3,C:\\dir\\\n6,""\n',
            [("1", 'say "hi" now'), ("3", "C:\\dir\\"), ("6", "")],
        ),
        ('text\n"two\nlines"\n', [("two\nlines",)]),
        ('id,text\n1,"first, line\nsecond, line"\n', [("1", "first, line\nsecond, line")]),
        (
            'id,text\n1,"say ""hi"", then go"\n2,"two\nlines"\n',
            [("1", 'say "hi", then go'), ("2", "two\nlines")],
        ),
        ('a,b\n,""\n', [(None, "")]),
        ('\ufeffa,b\r\n"x\r\ny",2\r\n', [("x\r\ny", "2")]),
        ("a,b\r\n1,2\n3,4\r\n", [("1", "2"), ("3", "4")]),
        ('a,b\n1,5" pipe\n', [("1", '5" pipe')]),
        ('a\nx\n""\n\ny\n', [("x",), ("",), (None,), ("y",)]),
        ("a,b\n\n1,2\n\n", [("1", "2")]),
        ("a,b\n 1 ,\t2\n", [(" 1 ", "\t2")]),
        ("a,b\n\x00x,#2\n#3,\\N\n", [("\x00x", "#2"), ("#3", "\\N")]),
        ("a,b\nnull,NA\nNaN,007\n", [("null", "NA"), ("NaN", "007")]),
        ('a,b\n1,"c:\\"\n2,x', [("1", "c:\\"), ("2", "x")]),
        ('"a ""b""","c\nd"\n1,2\n', [("1", "2")]),
        ("a,b\n", []),
    ],
)
def test_a_record_of_csv_is_sent_with_its_values(
    spark: SparkSession, tmp_path: Path, text: str, sent: list[tuple[str | None, ...]]
) -> None:
    (tmp_path / "rows.csv").write_bytes(text.encode())
    values, faults = mapped(spark, tmp_path / "rows.csv")
    assert ([tuple(row.values()) for row in values], faults) == (sent, [])


@pytest.mark.parametrize(
    ("text", "good", "fault"),
    [
        (b"a,b\n1,2,3\n4,5\n", ["4"], "1,2,3 (row 2 of rows.csv): 3 values for 2 columns: put"),
        (b"a,b\n4,5\n6\n", ["4"], "6 (row 3 of rows.csv): 1 values for 2 columns"),
        (b"a,b\n1,2,\xff\n4,5\n", ["4"], "1,2,\ufffd (row 2 of rows.csv): 3 values for 2 columns"),
        (
            b"a,b\n1,2,3\n4,5\n7,M\xfcller\n",
            ["4"],
            "M\ufffdller (row 4 of rows.csv, column b): not UTF-8: save the file as UTF-8",
        ),
    ],
)
def test_a_row_of_csv_that_cannot_be_kept_is_a_bad_row(
    spark: SparkSession, tmp_path: Path, text: bytes, good: list[str], fault: str
) -> None:
    (tmp_path / "rows.csv").write_bytes(text)
    values, faults = mapped(spark, tmp_path / "rows.csv")
    assert [row["a"] for row in values] == good
    assert any(fault in each for each in faults), faults


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'a,b\n4,5\n1,"x\n2,3\n', "row 3 of rows.csv, column b: x has no closing quote"),
        (b'a,b\n4,5\n"x\n2,3\n', 'row 3 of rows.csv: "x has no closing quote'),
        (b'a,b\n1,2,3\n4,"5\n', "row 3 of rows.csv, column b: 5 has no closing quote"),
        (b'a,b\n1,"\n', "row 2 of rows.csv, column b: an empty value has no closing quote"),
        (b'a,b\n1,"\xff\n', "row 2 of rows.csv, column b: \ufffd has no closing quote"),
        (b'a,b\n1,2\n3,"' + b"x" * 300, "rows.csv cannot be read from row 3 on: close each quote"),
    ],
)
def test_an_open_quote_stops_the_backfill(
    content: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that follows it is unread: to skip it would lose rows that are good."""
    monkeypatch.setattr(csv_source, "_BLOCK_BYTES", 100)
    with pytest.raises(CannotBackfill, match=text):
        read(("a", "b"), content, 2)


@pytest.mark.parametrize("value", [None, "b"])
def test_a_bad_row_of_csv_keeps_its_text(
    spark: SparkSession, tmp_path: Path, value: str | None
) -> None:
    (tmp_path / "rows.csv").write_bytes(
        b'a,b\n1,"x\ny",3\n7,M\xfc\xfcl"ler\n4,5\n6,\xff,"8"\n' + b"9" * 40 + b"\n"
    )
    rows = read_source(spark, str(tmp_path / "rows.csv"), Format.CSV)
    with patch.object(mapping, "ROW_BYTES", 20):
        found = map_rows(rows, RowMapping(value=value)).where("fault is not null").collect()
    assert sorted(bytes(row["value"]) for row in found) == [
        b'1,"x\ny",3', b'6,\xff,"8"', b'7,"M\xfc\xfcl""ler"', b"9" * 20,
    ]  # fmt: skip


@pytest.mark.parametrize("value", [None, "n"])
def test_a_bad_line_of_json_keeps_its_text(
    spark: SparkSession, tmp_path: Path, value: str | None
) -> None:
    (tmp_path / "rows.json").write_bytes(b'{"n": 1}\n{"n": \xff}\n')
    rows = read_source(spark, str(tmp_path / "rows.json"), Format.JSON)
    (row,) = map_rows(rows, RowMapping(value=value)).where("fault is not null").collect()
    assert bytes(row["value"]) == b'{"n": \xff}'


def test_refused_rows_do_not_wait_for_the_end_of_their_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(csv_source, "_BLOCK_BYTES", 100)
    content = b"a,b\n" + b"1,2,3\n4,5\n" * 100
    batches = list(csv_rows(("a", "b"), lines_of(content, 7)))
    assert sum(batch.num_rows for batch in batches) == 200
    assert max(batch.num_rows for batch in batches) < 50


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"a.csv": b""}, "has no header: write the names of the columns"),
        ({"a.csv": b"\n\n"}, "a.csv: the header cannot be read"),
        ({"a.csv": b"x,x\n1,2\n"}, "a.csv: two columns, .* are 'x': rename one"),
        ({"a.csv": b"x,X\n1,2\n"}, "a.csv: two columns, .* are 'X': rename one"),
        ({"a.csv": b"x,\n1,2\n"}, "a.csv: column 2 has no name: write one in the header"),
        ({"a.csv": b'x,"y\n1,2\n'}, "a.csv: the header cannot be read: .* close quotes"),
        ({"a.csv": b"x\xff\n1\n"}, "a.csv: the header is not UTF-8: save the file as UTF-8"),
        ({"a.csv": b"x\n1\n", "b.csv": b"y\n1\n"}, "b.csv: its columns are y, but those of a.csv"),
        ({"x=1/a.csv": b"x\n1\n"}, "a.csv: two columns, in the header or a folder's name"),
    ],
)
def test_a_header_that_cannot_be_kept_is_refused(
    spark: SparkSession, tmp_path: Path, files: dict[str, bytes], text: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CannotBackfill, match=text):
        mapped(spark, tmp_path)


def test_csv_in_folders_keeps_their_names_and_finds_columns_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    for day, text in {"007": "a,b\n1,2\n", "008": "b,a\n2,1\n", "009": ""}.items():
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "rows.csv").write_text(text)
    values, faults = mapped(spark, tmp_path)
    expected = [{"a": "1", "b": "2", "day": day} for day in ("007", "008")]
    assert (sorted(values, key=lambda row: str(row["day"])), faults) == (expected, [])


CELLS = st.text(st.sampled_from('ab ",\n\r\\;#\x00é\u2028'), max_size=6)
ROWS = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=8)
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=ROWS,
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    ends=st.sampled_from(["\r\n", "\n"]),
    piece=st.integers(1, 5),
)
def test_generated_csv_is_read_as_python_reads_it(
    rows: list[list[str]], quoting: int, ends: str, piece: int
) -> None:
    names = tuple(f"c{number}" for number in range(len(rows[0])))
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting, lineterminator=ends).writerows([names, *rows])
    # Python does not read a carriage return that it wrote without quotes.
    assume(list(csv.reader(io.StringIO(out.getvalue(), newline=""))) == [list(names), *rows])
    found = read(names, out.getvalue().encode(), piece)
    assert [(row.pop(FAULT), row.pop(TEXT)) for row in found] == [(None, None)] * len(rows)
    assert [[value or "" for value in row.values()] for row in found] == rows
    if quoting != csv.QUOTE_MINIMAL:
        assert all(value is not None for row in found for value in row.values())


@settings(max_examples=300, deadline=None)
@given(content=st.lists(st.sampled_from([*b'ab",\n\r\xff'])).map(bytes), piece=st.integers(1, 5))
def test_each_file_is_read_or_refused(content: bytes, piece: int) -> None:
    try:
        rows = read(("a", "b"), b"a,b\n" + content, piece)
    except CannotBackfill as refused:
        assert re.search(r"rows\.csv.*quote", str(refused))
        assert b'"' in content
        return
    assert all("rows.csv" in (row[FAULT] or "rows.csv") for row in rows)
    if not set(b'"\r') & set(content):
        assert len(rows) == sum(1 for line in content.split(b"\n") if line)


def read(names: tuple[str, ...], content: bytes, piece: int) -> list[dict[str, Any]]:
    """Read a file whose lines come in batches of some lines."""
    batches = csv_rows(names, lines_of(content, piece))
    return [row for batch in batches for row in batch.to_pylist()]


def lines_of(content: bytes, piece: int) -> list[pa.RecordBatch]:
    """A file as Spark hands it out."""
    lines = content.removesuffix(b"\n").split(b"\n")
    return [
        pa.RecordBatch.from_pydict(
            {"line": part, "file_path": ["file:/tmp/rows.csv"] * len(part)},
            pa.schema({"line": pa.binary(), "file_path": pa.string()}),
        )
        for part in (lines[at : at + piece] for at in range(0, len(lines), piece))
    ]
