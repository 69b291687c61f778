"""Read CSV as RFC 4180 has it, with Arrow's reader: every value is text."""

from __future__ import annotations

import csv as python_csv
import io
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count, islice
from typing import Any

import pyarrow as pa
from pyarrow import csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ringfaust.spark.backfill.errors import CannotBackfill
from ringfaust.spark.backfill.mapping import FAULT, LINE, SHOWN_CHARS, TEXT, quoted
from ringfaust.spark.frames import make_batch
from ringfaust.spark.vendor import from_arrow_schema

_WHOLE_FILES = {
    "spark.sql.files.maxPartitionBytes": str(1 << 40),
    "spark.sql.files.openCostInBytes": str(1 << 40),
}
"""A task reads one file from its start: only so is it known which line breaks are in quotes."""
_BLOCK_BYTES = 32 << 20
"""A row must fit into a block; no record of Kafka is as large."""
_END = uuid.uuid4().hex
"""A last row that is added to each file. A row with an open quote has it in a value."""
_ODD = uuid.uuid4().hex
"""Stands for bytes that are not UTF-8, in hexadecimal, until their row gets its fault."""
_ODD_BYTES = re.compile("[\udc80-\udcff]+")
_STANDS_IN = re.compile(_ODD + r"([0-9a-f]+)\.")


_HEADER = pa.schema({"file": pa.string(), "names": pa.list_(pa.string()), "fault": pa.string()})


def read_csv(spark: SparkSession, path: str) -> DataFrame:
    """The rows of files with a header. An empty value is null, unless it is in quotes.

    Raises:
        CannotBackfill: a file has no valid header, or another one than the other files.
    """
    for name, value in _WHOLE_FILES.items():
        spark.conf.set(name, value)
    lines = spark.read.schema(f"{LINE} string").option("lineSep", "\n").text(path)
    folders = lines.columns[1:]
    bytes_of_line, file = F.col(LINE).cast("binary"), F.col("_metadata.file_path")
    lines = lines.select(bytes_of_line, file, *map(quoted, folders))
    found = lines.mapInArrow(_read_header, from_arrow_schema(_HEADER))
    headers = sorted(found.collect(), key=lambda row: str(row[0]))
    if not headers:
        raise CannotBackfill("SOURCE", f"{path!r} has no header: write the names of the columns")
    first, names, _ = headers[0]
    for where, its_names, unread in headers:
        fault = unread or _header_fault(its_names, folders)
        if not fault and set(its_names) != set(names):
            fault = (
                f"its columns are {', '.join(its_names)}, but those of {first} are "
                f"{', '.join(names)}: backfill files with other columns by themselves"
            )
        if fault:
            raise CannotBackfill("SOURCE", f"{where}: {fault}")
    columns = [T.StructField(name, T.StringType()) for name in (*names, FAULT, *folders)]
    columns.append(T.StructField(TEXT, T.BinaryType()))
    return lines.mapInArrow(partial(csv_rows, names), T.StructType(columns))


def _header_fault(names: Sequence[str], folders: Sequence[str]) -> str | None:
    """What is wrong with the names of the columns."""
    if "" in names:
        return f"column {names.index('') + 1} has no name: write one in the header"
    known = {name.lower() for name in folders}
    for name in names:
        if name.lower() in known:
            return f"two columns, in the header or a folder's name, are {name!r}: rename one"
        known.add(name.lower())
    return None


def _read_header(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The names in the header of a task's file; a function for mapInArrow."""
    lines = _FileLines(batches, _END)
    if not lines.file:
        return
    names: list[str] | None = None
    fault: str | None = None
    with suppress(pa.ArrowInvalid):
        names = lines.open(lambda _: "skip").schema.names
    text = "".join(names or [_END])
    if _END in text:
        fault = "the header cannot be read: write the names of the columns, and close quotes"
    elif _ODD in text:
        fault = "the header is not UTF-8: save the file as UTF-8"
    yield make_batch([(lines.file, names, fault)], _HEADER)


class _FileLines(io.RawIOBase):
    """The lines of a task's file as the bytes that they were, and a last row."""

    def __init__(self, batches: Iterable[pa.RecordBatch], last: str) -> None:
        filled: Iterator[pa.RecordBatch] = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        self.file = ""
        """The file's name; empty if the task has no file, or one without lines."""
        self.folders: dict[str, str | None] = {}
        """The columns in the names of the file's folders."""
        if first is not None:
            values = {name: first.column(name)[0].as_py() for name in first.schema.names[1:]}
            self.file = values.pop("file_path").rpartition("/")[2]
            self.folders = values
            filled = chain([first], filled)
        lines = (b"\n".join([*batch.column(0).to_pylist(), b""]) for batch in filled)
        self._chunks = chain(map(self._as_utf8, lines), [f"{last}\n".encode()])
        self.is_odd = False
        """There were bytes that are not UTF-8."""
        self._rest = memoryview(b"")

    def _as_utf8(self, lines: bytes) -> bytes:
        text = _ODD_BYTES.sub(
            lambda odd: f"{_ODD}{odd[0].encode('utf-8', 'surrogateescape').hex()}.",
            lines.decode("utf-8", "surrogateescape"),
        )
        self.is_odd |= _ODD in text
        return text.encode()

    def open(self, refuse: Callable[[Any], str], names: Sequence[str] = ()) -> Any:
        """Arrow's reader of the lines. The values of columns that are named are text."""
        return csv.open_csv(
            io.BufferedReader(self),
            read_options=csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            parse_options=csv.ParseOptions(
                newlines_in_values=True,
                invalid_row_handler=refuse,
                # In a file with one column, an empty line is a row with a missing value.
                ignore_empty_lines=len(names) != 1,
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def readable(self) -> bool:
        """As every stream says."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer; 0 at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def csv_rows(names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task's file, given its lines; with names, a function for mapInArrow."""
    lines = _FileLines(batches, _END + "," * (len(names) - 1))
    if not lines.file:
        return
    refused: set[int] = set()
    bad: dict[str, bytes] = {}
    unclosed: list[CannotBackfill] = []  # what is raised in `refuse` would be lost

    def refuse(row: Any) -> str:
        refused.add(row.number)
        where = f"row {row.number} of {lines.file}"
        if _END in row.text:
            unclosed.append(_unclosed(where, row.text))
            return "skip"
        about = f"{row.actual_columns} values for {row.expected_columns} columns: put a value "
        about += "with a comma or a line break in quotes, and close each quote"
        bad[f"{_shown(row.text)} ({where}): {about}"] = _restored(row.text)
        return "skip"

    numbers = (number for number in count(2) if number not in refused)
    try:
        for batch in lines.open(refuse, names):
            is_last = batch.num_rows and batch.column(0)[-1].as_py() == _END
            rows = batch.select(names).slice(0, batch.num_rows - bool(is_last))
            numbered = list(islice(numbers, rows.num_rows))
            faults = _row_faults(rows, numbered, lines)
            texts = [_row_text(rows, at) if fault else None for at, fault in enumerate(faults)]
            yield _batch(names, rows.columns, faults, texts, lines)
            yield _bad_rows(names, bad, lines)
    except pa.ArrowInvalid as error:
        raise CannotBackfill(
            "SOURCE",
            f"{lines.file} cannot be read from row {next(numbers)} on: close each quote there; "
            f"a row has at most {_BLOCK_BYTES >> 20} MiB ({error})",
        ) from None
    if unclosed:
        raise unclosed[0]
    yield _bad_rows(names, bad, lines)


def _bad_rows(names: Sequence[str], bad: dict[str, bytes], lines: _FileLines) -> pa.RecordBatch:
    """The rows that Arrow refused since the last call, which do not wait for the end."""
    nothing = [pa.nulls(len(bad), pa.string())] * len(names)
    batch = _batch(names, nothing, list(bad), list(bad.values()), lines)
    bad.clear()
    return batch


def _batch(
    names: Sequence[str],
    values: Sequence[pa.Array],
    faults: Sequence[str | None],
    texts: Sequence[bytes | None],
    lines: _FileLines,
) -> pa.RecordBatch:
    folders = [pa.array([value] * len(faults), pa.string()) for value in lines.folders.values()]
    arrays = [*values, pa.array(faults, pa.string()), *folders, pa.array(texts, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, [*names, FAULT, *lines.folders, TEXT])


def _row_faults(
    rows: pa.RecordBatch, numbers: Sequence[int], lines: _FileLines
) -> list[str | None]:
    """What is wrong with the values of each row."""
    faults: list[str | None] = [None] * rows.num_rows
    suspects = range(rows.num_rows) if lines.is_odd else range(rows.num_rows)[-1:]
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for at in suspects:
            value = column[at].as_py() or ""
            where = f"row {numbers[at]} of {lines.file}, column {name}"
            if _END in value:
                raise _unclosed(where, value)
            if _ODD in value:
                faults[at] = f"{_shown(value)} ({where}): not UTF-8: save the file as UTF-8"
    return faults


def _unclosed(where: str, text: str) -> CannotBackfill:
    """All rows that follow are in the value, so they cannot be skipped as one bad row."""
    line = _shown(text).partition("\n")[0].rstrip("\r") or "an empty value"
    return CannotBackfill(
        "SOURCE",
        f"{where}: {line} has no closing quote, so all that follows is part of it: add it, or "
        "write a quote of the text itself twice",
    )


def _row_text(rows: pa.RecordBatch, at: int) -> bytes:
    """A row as CSV with the bytes of its file."""
    out = io.StringIO(newline="")
    values = [column[at].as_py() for column in rows.columns]
    python_csv.writer(out, lineterminator="").writerow(values)
    return _restored(out.getvalue())


def _restored(text: str) -> bytes:
    """The bytes of a text as its file has them."""
    parts = _STANDS_IN.split(text)
    return b"".join(
        bytes.fromhex(part) if number % 2 else part.encode() for number, part in enumerate(parts)
    )


def _shown(text: str) -> str:
    """The beginning of a text as its file has it."""
    return _STANDS_IN.sub("\ufffd", text.partition(_END)[0])[:SHOWN_CHARS]
