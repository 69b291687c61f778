"""Each test that asks for `functions` runs twice: on those in Python and on their twins in C."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ringfaust import compiled
from ringfaust.core import create
from ringfaust.protocol import decoder, encoder
from ringfaust.protocol.stored_rows import row_encoder

assert {create, decoder, encoder, row_encoder}, "they fill compiled.IN_PYTHON"


@pytest.fixture(scope="session")
def c() -> Any:
    """The functions in C."""
    if compiled.NATIVE is None:
        pytest.skip(f"nothing is compiled: {compiled.KIND}")
    return compiled.NATIVE


@pytest.fixture(scope="session", params=["python", "c"])
def functions(request: pytest.FixtureRequest) -> Any:
    """The functions in Python, and those in C."""
    if request.param == "c":
        return request.getfixturevalue("c")
    return SimpleNamespace(**compiled.IN_PYTHON)
