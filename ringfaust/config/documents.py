"""Read YAML configuration files, and locate the shipped ones.

Reading is strict: duplicate keys, anchors, octal numbers and multiple documents are errors, because
each of them can give a setting another value without warning. Every error names its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

import ringfaust
from ringfaust.errors import RingfaustError, suggestion

FILE_BYTES = 1 << 20
"""Size of the largest file that is read. Nobody writes a longer configuration by hand."""

_SHOWN_CHARS = 60
_HIDDEN = "security"  # errors never show values under this key: one may be a misplaced password
_CONSEQUENCE = "default_factory_not_called"  # pydantic reports it after another setting was wrong
_Model = TypeVar("_Model", bound=BaseModel)


class ConfigModel(BaseModel):
    """Base of all models: frozen, rejects unknown keys, never converts text to a number."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )


def refuse(text: str, *place: int | str) -> PydanticCustomError:
    """Return an error for a validator to raise. `place` is the path within the value."""
    return PydanticCustomError("ringfaust", "{text}", {"text": text, "place": place})


def refuse_all(refusals: Iterable[PydanticCustomError]) -> None:
    """Raise them together, if there are any, from a validator.

    Raises:
        ValidationError: there is at least one.
    """
    details = [InitErrorDetails(type=each, input=None) for each in refusals]
    if details:
        raise ValidationError.from_exception_data("value", details)


def without(fault_of: Callable[[str], str]) -> AfterValidator:
    """A validator that refuses text in which `fault_of` finds a fault."""

    def check(text: str) -> str:
        if fault := fault_of(text):
            raise refuse(fault)
        return text

    return AfterValidator(check)


def without_tilde(path: Path) -> Path:
    """Check a path, and put the user's folder in place of its `~`.

    Raises:
        PydanticCustomError: it has a NUL, or an unknown user.
    """
    if "\0" in str(path):
        raise refuse("contains a NUL character, which a path cannot")
    try:
        return path.expanduser()
    except RuntimeError:
        text = f"{shown(str(path))} begins with an unknown user: write the path out"
        raise refuse(text) from None


OptionalFile = Annotated[
    Annotated[Path, AfterValidator(without_tilde)] | None,
    Field(strict=False),
    WithJsonSchema({"type": ["string", "null"]}),
]


class Fault(NamedTuple):
    """One mistake in a configuration."""

    field: str
    """Path of the field, such as `routes.0.queue`. Empty: the whole file."""
    text: str
    """What is wrong, and what would be right."""
    line: int = 0
    """Line in the file, from 1. 0: unknown, or not from a file."""

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line else []
        place = ", ".join([*where, self.field] if self.field else where)
        return f"{place}: {self.text}" if place else self.text


class ConfigError(RingfaustError):
    """A configuration is not valid; nothing was started. Correct what `faults` names.

    Attributes:
        source: the file, or where else the data came from.
        faults: every mistake, so that all can be corrected at once.
    """

    def __init__(self, source: Path | str, faults: Sequence[Fault]) -> None:
        self.source = str(source)
        self.faults = tuple(faults)
        super().__init__("\n  ".join([f"{source} cannot be used:", *map(str, faults)]))


class ConfigErrors(ConfigError):
    """Several files are not valid; nothing was started."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        """`errors`: one for each file."""
        RingfaustError.__init__(self, "\n".join(map(str, errors)))
        self.source = ", ".join(each.source for each in errors)
        self.faults = tuple(fault for each in errors for fault in each.faults)


@dataclass(frozen=True)
class Document:
    """A YAML file: its data, and the line of every part."""

    path: Path
    data: dict[object, object]
    root: yaml.Node

    def line_of(self, place: Iterable[int | str]) -> int:
        """Return the line of the innermost of these keys and indexes that the file contains."""
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

    def model(self, kind: type[_Model]) -> _Model:
        """Validate the data as a model.

        Raises:
            ConfigError: the data is not valid; it lists every mistake.
        """
        return check(kind, self.data, self.path, self.line_of)


def check(
    kind: type[_Model],
    data: Mapping[Any, Any],
    source: Path | str,
    line_of: Callable[[Sequence[int | str]], int] = lambda _: 0,
) -> _Model:
    """Validate data as a model.

    Args:
        kind: the model's class.
        data: the data.
        source: the file, or where else the data came from, for the error.
        line_of: returns the line of a place in the data.

    Raises:
        ConfigError: the data is not valid; it lists every mistake.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        faults = [_fault(each, kind, line_of) for each in details if each["type"] != _CONSEQUENCE]
        raise ConfigError(source, faults) from None


def shipped(folder: str) -> Path:
    """Return the shipped folder `config` or `topics`: in the wheel, or else in the checkout."""
    package = Path(ringfaust.__file__).parent
    inside = package / "defaults" / folder
    return inside if inside.is_dir() else package.parent / folder


def read(path: Path) -> Document:
    """Read a YAML file whose top level is a mapping.

    Raises:
        ConfigError: the file cannot be read, is not valid YAML, or repeats a key.
    """
    text = _text(path)
    try:
        loader = StrictLoader(text)
        root = loader.get_single_node()
        data = loader.construct_document(root) if root else None
    except yaml.MarkedYAMLError as error:
        # Leave out the excerpt that the library adds: it may show a secret.
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        raise _unusable(path, error.problem or "not valid YAML", line) from None
    except yaml.YAMLError as error:
        reason = _short(str(error).partition("\n")[0])
        raise _unusable(path, f"not valid YAML: {reason}") from None
    except RecursionError:
        raise _unusable(path, "nested too deeply") from None
    if root is None or not isinstance(data, dict):
        what = "the file is empty" if data is None else "the file has no keys at its top level"
        raise _unusable(path, f"{what}; {_example()}")
    return Document(path, data, root)


def setting_value(text: str) -> bool | float | str:
    """Return what `NAME=text` on a command line means: a number, true or false, or else text."""
    try:
        found = StrictLoader(text).get_single_data()
    except (yaml.YAMLError, RecursionError):
        return text
    return found if isinstance(found, bool | int | float) else text


def shown(value: object) -> str:
    """Return a value as an error text shows it, shortened if it is long."""
    return _short(repr(value))


class StrictLoader(yaml.SafeLoader):
    """A YAML loader that rejects constructs which hide mistakes."""

    # The base classes are untyped.
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Reject aliases: they hide where a value comes from, and nested ones multiply its size."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _refused("aliases (*name) are not allowed: write the value out", mark)
        return super().compose_node(parent, index)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Reject surrogate code points: Kafka stores UTF-8, which cannot encode them."""
        text = str(super().construct_scalar(node))
        if any("\ud800" <= char <= "\udfff" for char in text):
            advice = "contains half a character (\\ud800 to \\udfff): write the whole one"
            raise _refused(f"{shown(text)} {advice}", node.start_mark)
        return text

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Reject duplicate keys, and keys that are not plain text."""
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                raise _refused("a setting's name must be plain text", key.start_mark)
            if key.value in seen:
                first = seen[key.value]
                text = f"{shown(key.value)} is repeated (first in line {first})"
                raise _refused(f"{text}: remove one of them", key.start_mark)
            seen[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Name the line of a value that its type does not fit, such as 2026-13-45 or `!!bool x`."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError):  # its text may contain a password
            kind = node.tag.rpartition(":")[2]
            text = f"not valid YAML: no {kind} looks like this; put text in quotes"
            raise _refused(text, node.start_mark) from None

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Reject octal and sexagesimal numbers: to YAML 010 is 8, and 1:30 is 90."""
        if _NOT_DECIMAL.fullmatch(self.construct_scalar(node)):
            text = "write a number without : and without a 0 before it; to YAML 010 is 8"
            raise _refused(f"{text}, and 1:30 is 90", node.start_mark)
        return super().construct_yaml_int(node)


StrictLoader.add_constructor("tag:yaml.org,2002:int", StrictLoader.construct_yaml_int)
_MERGE = "tag:yaml.org,2002:merge"
"""`<<`: it would hide a key that is repeated."""
_NOT_DECIMAL = re.compile(r"[-+]?(0[0-9_]+|.*:.*)")


def _refused(text: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=mark)


def _text(path: Path) -> str:
    try:
        if path.is_file() and path.stat().st_size > FILE_BYTES:
            raise _unusable(path, f"larger than {FILE_BYTES:,} bytes")
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise _unusable(path, f"file not found; {_example()}") from None
    except IsADirectoryError:
        raise _unusable(path, "a folder, not a file") from None
    except UnicodeDecodeError as error:
        raise _unusable(path, f"not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None


def _example() -> str:
    return f"for examples with comments, see {shipped('config')}"


def _unusable(path: Path, what: str, line: int = 0) -> ConfigError:
    return ConfigError(path, [Fault("", what, line)])


def _fault(
    detail: ErrorDetails, kind: type[BaseModel], line_of: Callable[[Sequence[int | str]], int]
) -> Fault:
    """Translate an error of pydantic into a fault."""
    place = [step for step in detail["loc"] if step != "[key]"]
    place.extend(detail.get("ctx", {}).get("place", ()))
    text = _fault_text(detail, kind, place)
    return Fault(".".join(map(str, place)), text, line_of(place))


def _fault_text(detail: ErrorDetails, kind: type[BaseModel], place: Sequence[int | str]) -> str:
    value = "" if _HIDDEN in place else f"{shown(detail['input'])} is not allowed: "
    match detail["type"]:
        case "extra_forbidden":
            known = fields_at(kind, place[:-1])
            return f"unknown setting; {suggestion(str(place[-1]), known)}"
        case "missing":
            return "this setting is required"
        case "string_type" | "path_type" | "invalid_key":
            return f"{value}must be text; put it in quotes"
        case "dict_type" | "model_type":
            return f"{value}must be a mapping of names to values"
        case "tuple_type":
            return f"{value}must be a list"
        case "ringfaust":
            return detail["msg"]
        case _:
            return value + detail["msg"].replace("Input should be", "must be")


def fields_at(kind: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Return the names of the settings that are allowed at a place in a model."""
    for step in place:
        if isinstance(step, str) and step in kind.model_fields:
            kind = _model_in(kind.model_fields[step].annotation) or kind
    return [field.alias or name for name, field in kind.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model within an annotation such as `tuple[RouteConfig, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if found := _model_in(inner):
            return found
    return None


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
