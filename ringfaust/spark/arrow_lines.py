"""The lines of the events topic as rows, read by Arrow: the same as `lines`, for plain records.

A record is plain if it can be read in one way only: it is ASCII, and each line is one JSON object
with a step and an event, whose fields have the types of LINE. All records that a worker writes are
plain.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as pj

from ringfaust.spark.lines import LINE, OBJECTS
from ringfaust.spark.vendor import to_arrow_schema

_LINE = to_arrow_schema(LINE)
_PARSED = pa.schema(field for field in _LINE if field.name not in OBJECTS)
_ESCAPED_NAME = re.compile(rb'\\u[0-9a-fA-F]{4}[a-z]*"\s*:')
_RECORD_COLUMNS = ["partition", "offset", "timestamp"]


class NotPlainError(Exception):
    """Arrow might read these records differently from Spark."""


def read_plain_lines(records: pa.Table) -> pa.Table:
    """Split plain records of the events topic into lines.

    Args:
        records: columns partition, offset, timestamp and value; at least one row.

    Returns:
        The columns of `ringfaust.spark.lines.read_lines`.

    Raises:
        NotPlainError: a record is not plain.
    """
    data = b"\n".join(map(_checked, records["value"].to_pylist()))
    fields = _parsed(data)
    texts = pc.split_pattern(records["value"].cast(pa.string()).combine_chunks(), "\n")
    raw = pc.list_flatten(texts)
    # Each line has at least one object. If there are as many objects as lines, each has one.
    if len(fields) != len(raw) or fields["step"].null_count or fields["event"].null_count:
        raise NotPlainError
    counts = pc.list_value_length(texts).to_numpy()
    of = np.repeat(np.arange(len(counts)), counts)
    line = np.arange(len(raw)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = {name: records[name].take(pa.array(of)) for name in _RECORD_COLUMNS}
    columns |= {"line": pa.array(line, pa.int32()), "raw": raw}
    columns |= {name: fields[name] for name in _PARSED.names}
    columns |= {name: _objects(name, data, raw) for name in OBJECTS}
    sequence = columns["sequence"]
    columns["sequence"] = pc.if_else(pc.equal(sequence, 0), None, sequence)
    return pa.table(columns).select([*_RECORD_COLUMNS, "line", "raw", *_LINE.names])


def _checked(value: bytes | None) -> bytes:
    """Return the value if each line begins and ends like an object: no object spans two lines.

    Field names are searched for as text, so none may be written with escapes.

    Raises:
        NotPlainError: the value is not plain.
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
    """A field that few lines have, as JSON text."""
    if f'"{name}"'.encode() not in data:
        return pa.nulls(len(raw), pa.string())
    texts: list[str | None] = [None] * len(raw)
    has_field = pc.match_substring(raw, f'"{name}"')
    for index in np.flatnonzero(has_field.to_numpy(zero_copy_only=False)):
        texts[index] = _object(name, raw[index].as_py())
    return pa.array(texts, pa.string())


def _object(name: str, line: str) -> str | None:
    """A field's JSON text, as Spark writes it.

    Raises:
        NotPlainError: a worker would write it differently, so Spark's text is not known.
    """
    try:
        value = json.loads(line, parse_float=_refuse).get(name)
        if value is None:
            return None
        as_written = json.dumps(value)
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError) as error:  # too many digits, too deeply nested
        raise NotPlainError from error
    if not isinstance(value, dict) or f'"{name}":{as_written}' not in line or "\\u" in text:
        raise NotPlainError
    return text


def _refuse(number: str) -> None:
    raise NotPlainError(number)
