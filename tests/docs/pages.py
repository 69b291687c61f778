"""The Markdown pages of the project, for the tests that check them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pages() -> list[Path]:
    """All Markdown pages that are committed or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        listed = subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):  # not a checkout
        return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).exists()]


def without_code(page: Path) -> str:
    """The page's text without its fenced code blocks."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names by which links can refer to the page's headings."""
    headings = re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }
