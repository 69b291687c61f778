"""Open MQ and Sun Java System Message Queue: properties, and the `imqcmd` lines of scripts."""

from __future__ import annotations

from pathlib import Path

from ringfaust.importers.imported import CannotImport, Imported, read_file
from ringfaust.importers.openmq_files import is_script, properties
from ringfaust.importers.openmq_imqcmd import Script
from ringfaust.importers.openmq_properties import Properties, Property
from ringfaust.importers.openmq_shell import ScriptError, commands


def import_openmq(path: Path) -> Imported:
    """Read a config.properties, an instance's properties, or a script with imqcmd.

    Raises:
        CannotImport: the file is too large, not text, or a value is not what it should be.
    """
    given = read_file(path)
    text = given.decode("latin-1")  # as Java reads properties
    if "\0" in text:
        raise CannotImport(path, 1 + text[: text.index("\0")].count("\n"), "is not text")
    imported = Imported(path)
    with imported.kept_when_refused():
        if is_script(text):
            _read_script(path, _script_text(given), imported)
        else:
            _read_properties(path, text, imported)
        imported.add_routes()
    return imported


def _script_text(given: bytes) -> str:
    try:
        return given.decode("utf-8-sig")
    except UnicodeDecodeError:
        return given.decode("latin-1")


def _read_script(path: Path, text: str, imported: Imported) -> None:
    try:
        script = Script(imported, list(commands(text)))
    except ScriptError as error:
        raise CannotImport(path, error.line, f"imqcmd: {error}") from None
    script.read()
    script.properties.finish()


def _read_properties(path: Path, text: str, imported: Imported) -> None:
    given = [Property(*each) for each in properties(text)]
    others = [each for each in given if not each.value]
    if others and not any(each.name.startswith("imq.") for each in given):
        about = f"{others[0].name[:60]!r} is neither NAME=VALUE nor imqcmd"
        raise CannotImport(path, others[0].line, about)
    read = Properties(imported, given)
    for each in given:
        read.read(each)
    read.note_default()
    read.finish()
