"""`python -m generate`, or `make generate`: write all generated files."""

from __future__ import annotations

from generate.files import FILES, ROOT

for name, text in FILES.items():
    (ROOT / name).parent.mkdir(exist_ok=True)
    (ROOT / name).write_text(text(), "utf-8")
