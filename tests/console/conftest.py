from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.browser import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    started = Browser()
    yield started
    started.driver.quit()
