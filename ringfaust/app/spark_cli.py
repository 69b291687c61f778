"""`ringfaust spark …`: the data pipeline. Each command imports what it needs when it runs."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from ringfaust.app.cli_parts import group

spark = group("The data pipeline on Spark (needs the extra ringfaust[spark]).")
