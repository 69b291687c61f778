"""Creates values of named tuples' classes from all their fields.

To call the class of a named tuple is to call a Python function. `make setup` compiles `create.c`,
which does the same as this module and then replaces it: tests/core/test_create.py compares them.
"""

from __future__ import annotations

from typing import Any


def create(kind: Any, *fields: Any) -> Any:
    """Create a value of a named tuple's class.

    Args:
        kind: the class.
        fields: all fields, in order.
    """
    return tuple.__new__(kind, fields)
