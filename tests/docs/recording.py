"""`make recording`: run the demo, keep what it prints and when, and draw that for the README.

The recording is an asciicast, which asciinema plays, too. The drawing leaves out some lines.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.docs.pages import ROOT

RECORDING = ROOT / "docs" / "images" / "demo.cast"
DRAWING = ROOT / "docs" / "images" / "demo.svg"
_COLUMNS = 100
_FASTER = 4
"""How much faster than the demo the drawing is."""
_FIRST, _LAST = 4, 2
"""Queues of the table that the drawing shows."""
_PROGRESS = re.compile(r" (replaying|proving, \w+ topic): ")
_STYLES = {
    r"^\$ .*": "bold",
    r"^ *[\d.]+ s  ": "dim",
    r"\byes$": "green",
    r"^[\d,]+ flights accounted for": "bold green",
    r"^0 lost, 0 duplicated, 0 altered\.": "bold",
}

Line = tuple[float, str]
"""Seconds since the start, and what was printed then."""


def record() -> Iterator[Line]:
    """Run the demo, and yield its lines as they come."""
    yield 0.0, "$ make demo"
    start = time.monotonic()
    process = subprocess.Popen(
        [Path(sys.executable).with_name("ringfaust"), "demo"],
        env={**os.environ, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        yield round(time.monotonic() - start, 2), line.rstrip()
    if process.wait():
        raise SystemExit("the demo failed; the recording stays as it was")


def write(lines: list[Line]) -> None:
    """Write the recording."""
    head = {"version": 2, "width": _COLUMNS, "height": len(lines)}
    events = [(seconds, "o", f"{text}\r\n") for seconds, text in lines]
    texts = [json.dumps(each, ensure_ascii=False) for each in (head, *events)]
    RECORDING.write_text("\n".join(texts) + "\n", "utf-8")


def read() -> list[Line]:
    """Read the recording."""
    _, *events = map(json.loads, RECORDING.read_text("utf-8").splitlines())
    return [(seconds, text.rstrip("\r\n")) for seconds, _, text in events]


def kinds(lines: list[str]) -> set[str]:
    """Lines without what differs in each run: numbers, times, carriers, progress and widths."""
    steady = [line for line in lines if not _PROGRESS.search(line)]
    texts = [re.sub(r"departures\.[A-Z0-9]{2}\b", "departures.", line) for line in steady]
    return {
        " ".join(re.sub(r"\d[\d,.]*\d|\d", "0", text.strip(" ─")).split()) for text in texts
    } - {""}


def shown(lines: list[Line]) -> list[Line]:
    """The lines of the drawing: without progress, hints at the end, and most of the queues."""
    steady = [line for line in lines if not _PROGRESS.search(line[1])]
    end = next(i for i, (_, text) in enumerate(steady) if text.startswith("The worker, the broker"))
    kept = steady[: end - 1]
    rows = [i for i, (_, text) in enumerate(kept) if text.startswith(" departures.")]
    gap = rows[_FIRST:-_LAST]
    kept[gap[0] : gap[-1] + 1] = [(kept[gap[0]][0], " …")]
    return kept


def draw(lines: list[Line]) -> str:
    """Return an SVG in which the lines appear one after the other, once."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    for _, line in lines:
        text = Text(line)
        for pattern, style in _STYLES.items():
            text.highlight_regex(pattern, style)
        console.print(text, soft_wrap=True)
    svg = console.export_svg(title="ringfaust", unique_id="demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # nothing is loaded
    css = (
        "@media (prefers-reduced-motion: no-preference) {"
        "text[style] { animation: appear 1ms both } }"
        "@keyframes appear { from { visibility: hidden } }"
    )
    svg = svg.replace("<style>", f"<style>\n    {css}\n", 1)
    return re.sub(
        r'<text (?=[^>]*clip-path="url\(#demo-line-(\d+)\)")',
        lambda at: f'<text style="animation-delay:{lines[int(at[1])][0] / _FASTER:.2f}s" ',
        svg,
    )


def main() -> None:
    """Record the demo, and draw it."""
    write(list(record()))
    DRAWING.write_text(draw(shown(read())), "utf-8")


if __name__ == "__main__":
    main()
