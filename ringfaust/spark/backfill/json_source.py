"""Read JSON, one object per line: the line is the value, and its columns lose nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial, reduce
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ringfaust.spark.backfill.mapping import FAULT, LINE, NESTED, SHOWN_CHARS, quoted
from ringfaust.spark.frames import read_rows
from ringfaust.spark.vendor import to_arrow_schema

_DEPTH = 20
"""What is nested deeper is text."""
_LONG_DIGITS = 20
_BOM = b"\xef\xbb\xbf"


def read_json(spark: SparkSession, path: str) -> DataFrame:
    """The rows, with the columns `LINE` and `NESTED`.

    A column has a type only if all its values have: whole numbers, true and false, objects, lists.
    Any other column is the text that its lines have.
    """
    lines = spark.read.schema(f"{LINE} string").text(path)
    folders = lines.columns[1:]
    lines = lines.select(F.col(LINE).cast("binary"), *map(quoted, folders))
    found = lines.mapInArrow(_kinds, "kind string").collect()
    kinds = (T.StructType.fromJson(json.loads(row[0])) for row in found)
    nothing: T.DataType = T.StructType()
    columns = _known(reduce(_wider, kinds, nothing))
    own = [
        T.StructField(LINE, T.BinaryType()),
        T.StructField(FAULT, T.StringType()),
        T.StructField(NESTED, T.MapType(T.StringType(), T.StringType())),
    ]
    schema = T.StructType([*own, *columns])
    return lines.mapInArrow(partial(_rows, schema), schema)


class _Number(str):
    """The text of a number that a long integer does not hold exactly."""

    __slots__ = ()


def _whole(text: str) -> int | _Number:
    if len(text) <= _LONG_DIGITS and text != "-0" and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    return _Number(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"column {twice!r} is there twice: keep one of the two values")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON: write null, or a text in quotes")


def _parse(line: bytes, folders: dict[str, str | None]) -> tuple[bytes, dict[str, Any]]:
    """A line with the columns in the names of its folders, and its columns."""
    text = line.decode()
    try:
        row = json.loads(
            text,
            parse_int=_whole,
            parse_float=_Number,
            parse_constant=_no_number,
            object_pairs_hook=_object,
        )
        if "\\ud" in text.lower() or text.count("{") + text.count("[") > _DEPTH:
            _as_json(row).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"{error}: write one JSON object per line") from None
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is no character: write both halves") from None
    except RecursionError:
        raise ValueError("too many objects or lists in each other: nest fewer") from None
    if not isinstance(row, dict):
        raise ValueError("not an object: write one JSON object per line")
    if taken := folders.keys() & row.keys():
        raise ValueError(f"column {min(taken)!r} is also the name of a folder: rename one")
    if folders:
        more = _as_json(folders)[1:-1].encode()
        line = line[:-1] + (b"," if row else b"") + more + b"}"
    return line, row | folders


def _as_json(value: Any) -> str:
    """JSON with each number as its line has it."""
    if isinstance(value, dict):
        pairs = (
            f"{json.dumps(name, ensure_ascii=False)}:{_as_json(each)}"
            for name, each in value.items()
        )
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_as_json, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)


def _lines(batch: pa.RecordBatch) -> Iterator[tuple[bytes, dict[str, Any], str | None]]:
    """Each line that is not blank, its columns, and its fault."""
    names = batch.schema.names[1:]
    for found, *values in read_rows([batch]):
        line = found.removeprefix(_BOM).strip()
        if not line:
            continue
        try:
            yield *_parse(line, dict(zip(names, values, strict=True))), None
        except UnicodeDecodeError:
            yield line, {}, f"{_shown(line)}: not UTF-8: save the file as UTF-8"
        except ValueError as error:
            yield line, {}, f"{_shown(line)}: {error}"


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")[:SHOWN_CHARS]


def _kinds(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The columns of a task's lines and their types; a function for mapInArrow."""
    kind: T.DataType = T.StructType()
    for batch in batches:
        kind = reduce(_wider, (_kind(row) for _, row, _ in _lines(batch)), kind)
    yield pa.RecordBatch.from_arrays([pa.array([kind.json()])], ["kind"])


def _kind(value: Any, depth: int = 0) -> T.DataType:
    """The type that holds a value exactly."""
    match value:
        case None:
            return T.NullType()
        case bool():
            return T.BooleanType()
        case int():
            return T.LongType()
        case dict() if depth < _DEPTH:
            fields = [T.StructField(name, _kind(each, depth + 1)) for name, each in value.items()]
            return T.StructType(fields)
        case list() if depth < _DEPTH:
            element: T.DataType = T.NullType()
            for each in value:
                element = _wider(element, _kind(each, depth + 1))
            return T.ArrayType(element)
    return T.StringType()


def _wider(one: T.DataType, other: T.DataType) -> T.DataType:
    """The type that holds the values of both exactly."""
    if one == other or isinstance(other, T.NullType):
        return one
    if isinstance(one, T.NullType):
        return other
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        kinds = {field.name: field.dataType for field in one}
        for field in other:
            kinds[field.name] = _wider(kinds.get(field.name, T.NullType()), field.dataType)
        return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        return T.ArrayType(_wider(one.elementType, other.elementType))
    return T.StringType()


def _known(kind: T.DataType) -> Any:
    """The type, with text where all values are null."""
    if isinstance(kind, T.StructType):
        fields = [T.StructField(field.name, _known(field.dataType)) for field in kind]
        return T.StructType(fields)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_known(kind.elementType))
    return T.StringType() if isinstance(kind, T.NullType) else kind


def _rows(schema: T.StructType, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task's lines; with a schema, a function for mapInArrow."""
    nested = {
        field.name for field in schema if isinstance(field.dataType, T.StructType | T.ArrayType)
    }
    for batch in batches:
        rows = []
        for line, row, fault in _lines(batch):
            given = {name for name in nested & row.keys() if row[name] is not None}
            texts = {name: _as_json(row[name]) for name in given}
            rows.append(
                _fitted(row, schema) | {LINE: line, FAULT: fault, NESTED: list(texts.items())}
            )
        yield pa.RecordBatch.from_pylist(rows, to_arrow_schema(schema))


def _fitted(value: Any, kind: T.DataType) -> Any:
    """The value as its type has it."""
    if value is None:
        return None
    if isinstance(kind, T.StructType):
        return {
            field.name: _fitted(value[field.name], field.dataType)
            for field in kind
            if field.name in value
        }
    if isinstance(kind, T.ArrayType):
        return [_fitted(each, kind.elementType) for each in value]
    if isinstance(kind, T.StringType):
        return value if isinstance(value, str) else _as_json(value)
    return value
