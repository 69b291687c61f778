"""Columns that the readers of a source add to its own."""

from __future__ import annotations

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
