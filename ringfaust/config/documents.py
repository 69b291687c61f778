"""The YAML files people write: where the shipped ones are, and how each is read.

Reading is strict: a key that stands twice, an anchor or a second document is an error, for each
is how a setting that one believes in comes to be ignored. What is wrong is told with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

import ringfaust
from ringfaust.errors import RingfaustError, suggestion

FILE_BYTES = 1 << 20
"""Largest file that is read: what is longer is not a configuration, or not of a person."""

_SHOWN_CHARS = 60
_HIDDEN = "security"  # what stands under this key is not shown: it may be a misplaced password
_CONSEQUENCE = "default_factory_not_called"  # pydantic's, when another setting was refused
_Model = TypeVar("_Model", bound=BaseModel)


class ConfigModel(BaseModel):
    """Frozen; an unknown key is an error; text is text and a number is a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def refuse(text: str, *place: int | str) -> PydanticCustomError:
    """An error for a validator to raise; `place` leads to the part of the value it is about."""
    return PydanticCustomError("ringfaust", "{text}", {"text": text, "place": place})


class Fault(NamedTuple):
    """One thing that is wrong with a configuration."""

    field: str
    """Path of the field, such as `routes.0.queue`; empty: the file as a whole."""
    text: str
    """What is wrong, and what would be right."""
    line: int = 0
    """Line in the file, from 1; 0: not known, or not from a file."""

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line else []
        place = ", ".join([*where, self.field] if self.field else where)
        return f"{place}: {self.text}" if place else self.text


class ConfigError(RingfaustError):
    """A configuration cannot be used; nothing was started. Mend what `faults` names.

    Attributes:
        source: the file, or what else was read.
        faults: all that was found, so that it can be mended in one go.
    """

    def __init__(self, source: Path | str, faults: Sequence[Fault]) -> None:
        self.source = str(source)
        self.faults = tuple(faults)
        super().__init__("\n  ".join([f"{source} cannot be used:", *map(str, faults)]))


@dataclass(frozen=True)
class Document:
    """A file that was read: its plain data, and where each of them stood."""

    path: Path
    data: dict[object, object]
    root: yaml.Node

    def line_of(self, place: Iterable[int | str]) -> int:
        """Line of the innermost of these keys and indexes that the file has."""
        node, line = self.root, self.root.start_mark.line
        for step in place:
            if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                node = node.value[step] if step < len(node.value) else node
                line = node.start_mark.line
            elif isinstance(node, yaml.MappingNode):
                found = [pair for pair in node.value if pair[0].value == str(step)]
                if not found:
                    break
                line, node = found[0][0].start_mark.line, found[0][1]
        return line + 1

    def model(self, kind: type[_Model], changes: Mapping[str, object] | None = None) -> _Model:
        """Check the data, with `changes` laid over them, and make a model of them.

        Raises:
            ConfigError: they do not fit; one fault for each place.
        """
        return check(kind, {**self.data, **(changes or {})}, self.path, self.line_of)


def check(
    kind: type[_Model],
    data: Mapping[Any, Any],
    source: Path | str,
    line_of: Callable[[Sequence[int | str]], int] = lambda _: 0,
) -> _Model:
    """Make a model of data.

    Args:
        kind: the model's class.
        data: what it is made of.
        source: the file or other place they came from, for the error.
        line_of: tells the line of a place in the data.

    Raises:
        ConfigError: the data do not fit; all faults are told.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        faults = [_fault(each, kind, line_of) for each in details if each["type"] != _CONSEQUENCE]
        raise ConfigError(source, faults) from None


def shipped(folder: str) -> Path:
    """Where the shipped files of `config` or `topics` are: in the wheel, else in the checkout."""
    package = Path(ringfaust.__file__).parent
    inside = package / "defaults" / folder
    return inside if inside.is_dir() else package.parent / folder


def read(path: Path) -> Document:
    """Read a YAML file whose top level is keys with values.

    Raises:
        ConfigError: it cannot be read, is not such a file, or says something twice.
    """
    text = _text(path)
    try:
        loader = StrictLoader(text)
        root = loader.get_single_node()
        data = loader.construct_document(root) if root else None
    except yaml.MarkedYAMLError as error:
        # Without the excerpt that the library adds: it may show a secret.
        mark = error.problem_mark or error.context_mark
        raise _unreadable(
            path, error.problem or "is no YAML", mark.line + 1 if mark else 0
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise _unreadable(path, f"is no YAML: {_short(str(error).partition(chr(10))[0])}") from None
    except RecursionError:
        raise _unreadable(path, "is nested too deeply") from None
    if root is None or not isinstance(data, dict):
        what = "is empty" if data is None else "has no keys at its top level"
        raise _unreadable(path, f"{what}; {_example()}")
    return Document(path, data, root)


def shown(value: object) -> str:
    """A value as an error text shows it: of bounded length."""
    return _short(repr(value))


class StrictLoader(yaml.SafeLoader):
    """YAML without what hides mistakes."""

    # The base classes have no types.
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """As ever, but no aliases: what is written once is meant once, and cannot multiply."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _refused("an alias (*name) is not allowed here: write the value out", mark)
        return super().compose_node(parent, index)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """As ever, but whole characters only: nothing else can be written to Kafka."""
        text = str(super().construct_scalar(node))
        if any("\ud800" <= char <= "\udfff" for char in text):
            whole = f"{shown(text)} holds half a character (\\ud800 to \\udfff): write the whole"
            raise _refused(whole, node.start_mark)
        return text

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As ever, but no name twice."""
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _refused("the name of a setting must be plain text", key.start_mark)
            if key.value in seen:
                first = seen[key.value]
                text = f"{shown(key.value)} stands here a second time (first in line {first})"
                raise _refused(f"{text}: keep one of them", key.start_mark)
            seen[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)


def _refused(text: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=mark)


def _text(path: Path) -> str:
    try:
        if path.is_file() and path.stat().st_size > FILE_BYTES:
            raise _unreadable(path, f"is larger than {FILE_BYTES:,} bytes")
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise _unreadable(path, f"is not there; {_example()}") from None
    except IsADirectoryError:
        raise _unreadable(path, "is a folder, not a file") from None
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}") from None


def _example() -> str:
    return f"commented examples are in {shipped('config')}"


def _unreadable(path: Path, what: str, line: int = 0) -> ConfigError:
    return ConfigError(path, [Fault("", what, line)])


def _fault(
    detail: ErrorDetails, kind: type[BaseModel], line_of: Callable[[Sequence[int | str]], int]
) -> Fault:
    """Put one of pydantic's findings in our words."""
    place = [step for step in detail["loc"] if step != "[key]"]
    place.extend(detail.get("ctx", {}).get("place", ()))
    text = _words(detail, kind, place)
    return Fault(".".join(map(str, place)), text, line_of(place))


def _words(detail: ErrorDetails, kind: type[BaseModel], place: Sequence[int | str]) -> str:
    but = "" if _HIDDEN in place else f"is {shown(detail['input'])}, but "
    match detail["type"]:
        case "extra_forbidden":
            known = _fields_at(kind, place[:-1])
            return f"there is no such setting; {suggestion(str(place[-1]), known)}"
        case "missing":
            return "this has to be set"
        case "string_type" | "path_type":
            return f"{but}must be text: put it in quotes"
        case "dict_type" | "model_type":
            return f"{but}must be names with values"
        case "ringfaust":
            return detail["msg"]
        case _:
            return but + detail["msg"].replace("Input should be", "must be")


def _fields_at(kind: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Names of the settings of the model at this place inside a model."""
    for step in place:
        if isinstance(step, str) and step in kind.model_fields:
            kind = _model_in(kind.model_fields[step].annotation) or kind
    return list(kind.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation such as `tuple[Route, ...]` is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if found := _model_in(inner):
            return found
    return None


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
