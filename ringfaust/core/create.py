"""Creates values of named tuples' classes from all their fields.

To call the class of a named tuple is to call a Python function.
"""

from __future__ import annotations

from typing import Any

from ringfaust.compiled import in_c


@in_c
def create(kind: Any, *fields: Any) -> Any:
    """Create a value of a named tuple's class.

    Args:
        kind: the class.
        fields: all fields, in order.

    Raises:
        TypeError: there are more or fewer. Code in C reads fields without looking them up.
    """
    if len(fields) != len(kind._fields):
        raise TypeError(f"{kind.__name__} has {len(kind._fields)} fields, not {len(fields)}")
    return tuple.__new__(kind, fields)
