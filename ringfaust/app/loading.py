"""Find the `RingApp` that a command line names."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from pathlib import Path

from ringfaust.app.app import RingApp
from ringfaust.errors import RingfaustError, suggestion


class CannotLoad(RingfaustError):
    """There is no such app. The text says what is wrong with its name or its module."""


def load_app(target: str) -> RingApp:
    """Import a module and return its app.

    Args:
        target: MODULE:ATTRIBUTE. The module is searched in the present folder first.

    Raises:
        CannotLoad: there is none, or the module cannot be imported.
    """
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise CannotLoad(f"{target!r} is not of the form MODULE:ATTRIBUTE, such as shop:app")
    here = str(Path.cwd())
    if sys.path[0] != here:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise CannotLoad(
                f"there is no module {error.name!r} in {here} or where Python is installed"
            ) from None
        raise CannotLoad(_failed_import(module_name, error)) from None
    except Exception as error:
        raise CannotLoad(_failed_import(module_name, error)) from None
    apps = [name for name, each in vars(module).items() if isinstance(each, RingApp)]
    if not hasattr(module, attribute):
        known = suggestion(attribute, apps) if apps else "it has no RingApp"
        raise CannotLoad(f"module {module_name!r} has no {attribute!r}; {known}")
    found = getattr(module, attribute)
    if not isinstance(found, RingApp):
        known = f"known: {', '.join(apps)}" if apps else f"{module_name!r} has none"
        raise CannotLoad(f"{target} is a {type(found).__name__}, and not a RingApp; {known}")
    return found


def _failed_import(module: str, error: Exception) -> str:
    """Say where an import failed: the last line of the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if "importlib" not in each.filename][1:]
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
    else:
        where = f"{ours[-1].filename}, line {ours[-1].lineno}" if ours else module
    return f"module {module!r} cannot be imported: {where}: {type(error).__name__}: {error}"
