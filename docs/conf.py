"""How Sphinx builds the documentation site; `make docs` does.

The source folder is the checkout's top level, so the links of a page are the same on the site as on
GitHub. The pages contain no markup of Sphinx: the navigation is below.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx import addnodes
from sphinx.application import Sphinx

from ringfaust import __version__

NAVIGATION: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "README": {
        "Start": (
            "docs/tutorials/README", "docs/how-to/README", "docs/concepts", "docs/comparison",
            "docs/faq", "docs/glossary",
        ),
        "Deploy": (
            "docs/install", "docs/operations", "docs/kafka-services", "docs/troubleshooting",
            "docs/configuration", "docs/commands", "docs/cli", "docs/console", "docs/http-api",
            "docs/import", "docs/artemis", "docs/spark", "docs/spark-ring", "docs/spark-plan",
            "docs/performance", "SECURITY",
            "CHANGELOG",
        ),
        "Integrate": (
            "docs/client", "docs/handlers", "docs/faststream", "docs/protocol", "docs/backfill",
            "docs/redrive",
        ),
        "Audit": (
            "docs/semantics", "docs/rules", "docs/verification", "docs/audit", "docs/lake",
            "docs/maintain", "docs/rewind", "docs/kafka-connect",
        ),
        "Contribute": (
            "CONTRIBUTING", "docs/architecture", "docs/adr/README", "docs/scenario-format",
            "docs/model/README",
        ),
    },
    "docs/tutorials/README": {"": ("[1-9]*",)},
    "docs/how-to/README": {
        "": (
            "deploy-a-worker", "scale-out", "upgrade", "kafka-is-down",
            "move-to-another-cluster", "change-the-configuration",
            "change-a-ring-size", "delete-a-message", "redrive-dead-messages",
            "queue-between-programs", "account-for-evictions",
        )
    },
    "docs/adr/README": {"": ("0*",)},
}  # fmt: skip
"""The pages below a page, by heading. Sphinx warns of a page that is in none of them."""

ACCESSIBLE: Mapping[str, str] = {
    r'<p class="caption" role="heading">': r'<p class="caption" role="heading" aria-level="2">',
    r"<pre>": r'<pre tabindex="0">',
    r'<div class="(table-wrapper [\w -]+)">': r'<div class="\1" tabindex="0">',
}
"""What Sphinx and Furo write, and what axe wants instead."""

project = "ringfaust"
copyright = "the ringfaust developers"  # noqa: A001 - Sphinx's name
release = __version__
root_doc = "README"
include_patterns = ["[A-Z]*.md", "docs/*.md", "docs/**/*.md"]
exclude_patterns = ["[.a-ce-z]*", "**/node_modules"]  # the folders beside docs
extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = f"ringfaust {__version__}"
html_copy_source = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Append the pages below this one, which Sphinx shows at the side."""
    for heading, below in NAVIGATION.get(page, {}).items():
        options = [":hidden:", ":glob:", *([f":caption: {heading}"] if heading else [])]
        source[0] += "\n".join(["\n\n```{toctree}", *options, "", *below, "```", ""])


def show_folders_as_text(app: Sphinx, document: nodes.document) -> None:
    """Turn links to folders of the checkout into text; the site has no pages for them."""
    for link in list(document.findall(addnodes.pending_xref)):
        page = app.env.doc2path(link["refdoc"])
        if (page.parent / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def improve_access(app: Sphinx, error: Exception | None) -> None:
    """Say the level of the navigation's headings, and let the keyboard scroll what is wide."""
    if error is not None:
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text("utf-8")
        for old, new in ACCESSIBLE.items():
            text = re.sub(old, new, text)
        path.write_text(text, "utf-8")


def add_index(app: Sphinx, error: Exception | None) -> None:
    """Give the first page the name that browsers and servers look for."""
    if error is None:
        shutil.copyfile(app.outdir / "README.html", app.outdir / "index.html")


def setup(app: Sphinx) -> Mapping[str, Any]:
    """Connect the functions above."""
    app.add_lexer("mermaid", TextLexer)  # GitHub draws it; the site loads nothing that could
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", show_folders_as_text)
    app.connect("build-finished", improve_access)
    app.connect("build-finished", add_index)
    return {"parallel_read_safe": True}
