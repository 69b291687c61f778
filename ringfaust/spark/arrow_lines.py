"""The lines of the events topic as rows, read by Arrow: what `lines` tells, of plain records only.

A record is plain if it leaves no question: ASCII, and each line one JSON object that has a step
and an event, and all its fields of the types that LINE tells. So are those that a worker writes.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as pj
from pyspark.sql.pandas.types import to_arrow_schema

from ringfaust.spark.lines import LINE

_LINE = to_arrow_schema(LINE)
_OBJECTS = ("settings", "counts")
"""Fields that stay JSON."""
_PARSED = pa.schema(field for field in _LINE if field.name not in _OBJECTS)
_ESCAPED_NAME = re.compile(rb'\\u[0-9a-fA-F]{4}[a-z]*"\s*:')
_PLACE = ["partition", "offset", "timestamp"]


class NotPlainError(Exception):
    """Records that Arrow might read otherwise than Spark does."""


def read_plain_lines(records: pa.Table) -> pa.Table:
    """Records of the events topic → their lines.

    Args:
        records: columns partition, offset, timestamp and value, at least a row.

    Returns:
        The columns of `ringfaust.spark.lines.read_lines`.

    Raises:
        NotPlainError: a record is not plain.
    """
    data = b"\n".join(map(_looked_at, records["value"].to_pylist()))
    fields = _parsed(data)
    texts = pc.split_pattern(records["value"].cast(pa.string()).combine_chunks(), "\n")
    raw = pc.list_flatten(texts)
    # Each line has one object at least: if there are as many as lines, each has one.
    if len(fields) != len(raw) or fields["step"].null_count or fields["event"].null_count:
        raise NotPlainError
    counts = pc.list_value_length(texts).to_numpy()
    of = np.repeat(np.arange(len(counts)), counts)
    line = np.arange(len(raw)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = {name: records[name].take(pa.array(of)) for name in _PLACE}
    columns |= {"line": pa.array(line, pa.int32()), "raw": raw}
    columns |= {name: fields[name] for name in _PARSED.names}
    columns |= {name: _objects(name, data, raw) for name in _OBJECTS}
    sequence = columns["sequence"]
    columns["sequence"] = pc.if_else(pc.equal(sequence, 0), None, sequence)
    return pa.table(columns).select([*_PLACE, "line", "raw", *_LINE.names])


def _looked_at(value: bytes | None) -> bytes:
    """The value, if each line begins and ends as an object does: then no object spans two lines.

    Names of fields are looked for as text, so they must not hide.

    Raises:
        NotPlainError: it does not.
    """
    if (
        value is None
        or not value.isascii()
        or not value.startswith(b"{")
        or not value.endswith(b"}")
        or value.count(b"\n") != value.count(b"}\n{")
        or (b"\\u" in value and _ESCAPED_NAME.search(value))
    ):
        raise NotPlainError
    return value


def _parsed(data: bytes) -> pa.Table:
    try:
        return pj.read_json(
            pa.BufferReader(data),
            pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            pj.ParseOptions(explicit_schema=_PARSED, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise NotPlainError from error


def _objects(name: str, data: bytes, raw: pa.StringArray) -> pa.Array:
    """A field of few lines, as JSON."""
    if f'"{name}"'.encode() not in data:
        return pa.nulls(len(raw), pa.string())
    texts: list[str | None] = [None] * len(raw)
    there = pc.match_substring(raw, f'"{name}"')
    for index in np.flatnonzero(there.to_numpy(zero_copy_only=False)):
        texts[index] = _object(name, raw[index].as_py())
    return pa.array(texts, pa.string())


def _object(name: str, line: str) -> str | None:
    """As Spark writes it.

    Raises:
        NotPlainError: it is not as a worker writes it, so Spark may write it in a way of its own.
    """
    try:
        value = json.loads(line, parse_float=_refuse).get(name)
        if value is None:
            return None
        said = json.dumps(value)
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError) as error:  # a number of too many digits, too deep a nest
        raise NotPlainError from error
    if not isinstance(value, dict) or f'"{name}":{said}' not in line or "\\u" in text:
        raise NotPlainError
    return text


def _refuse(number: str) -> None:
    raise NotPlainError(number)
