"""What is generated from the code is up to date."""

from __future__ import annotations

import pytest

from generate.files import FILES, ROOT


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text("utf-8") == FILES[name](), "run `make generate`"


def test_no_file_is_left_of_what_was_generated() -> None:
    folders = [ROOT / "docs/schemas", ROOT / "docs/contracts"]
    found = {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.iterdir()}
    assert found <= {*FILES}
