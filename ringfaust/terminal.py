"""A terminal for rich output, on which the text of others cannot do anything."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from ringfaust.visible import visible


class Terminal(Console):
    """A console that writes what would steer the terminal as an escape. Its own styles work."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text that is printed, also in a cell of a table."""
        return super().render_str(visible(text, keeps_lines=True), **options)
