"""The Markdown pages of the project, for the tests that check them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tracked(*patterns: str) -> list[Path]:
    """The files that are committed or about to be, of these patterns."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    try:
        listed = subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):  # not a checkout
        found = {path for pattern in patterns for path in ROOT.rglob(pattern)}
        return sorted(path for path in found if not {".venv", "node_modules"} & {*path.parts})
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).exists()]


def pages() -> list[Path]:
    """All Markdown pages."""
    return tracked("*.md")


def without_code(page: Path) -> str:
    """The page's text without its fenced code blocks."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names by which links can refer to the page's headings."""
    headings = re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }
