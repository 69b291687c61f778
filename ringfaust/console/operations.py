"""What `Admin` does, as operations of the HTTP API: derived from its methods.

The parameters of a method become a model: their types and defaults are the method's, and their
limits those of the control record that it sends. So a new method has a route, a check of what is
given and a place in the OpenAPI document without more code.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from typing_extensions import TypedDict

from ringfaust.client import Admin
from ringfaust.client.resource import AsyncResource
from ringfaust.protocol.control import MODELS
from ringfaust.visible import plain

MOST_MOVED = 10_000
"""Most messages that are moved at once."""
MOST_ITEMS = 10_000
"""Most items of a page of a list."""

READS = frozenset({
    "queues", "queue", "homes", "browse_page", "message", "xids", "configuration", "history",
    "settings_since", "feature_level",
})  # fmt: skip
"""Methods that change nothing. All others need the role `change`."""
INSTEAD: Mapping[str, str] = {"browse": "browse_page", "raise_level": "feature_level"}
"""Methods without an operation, and the one to use. `ringfaust upgrade finish` raises the level,
for good: it looks first whether all workers support that (R129)."""
LIST_BYTES = 1024 * 1024
"""Most bytes of the items of a page. It exceeds them by one item at most, and has at least one."""
_PAGED: Mapping[str, tuple[str, str | int]] = {
    "queues": ("queue", ""), "xids": ("xid", ""), "history": ("revision", -1),
}  # fmt: skip
"""Methods whose list comes in pages: the name by which it is in order, and a value before all."""
_CALLER = ("who", "by")
"""Parameters that say who asks. The API takes them from the login, not from the request."""
_LEFT_OUT = ("is_stopped",)
"""Parameters that keep their default: nobody here knows that no worker runs (R113)."""
_COMMANDS: Mapping[str, Sequence[str]] = {
    "queues": ["list_queues"], "queue": ["list"], "homes": ["list"], "browse_page": ["browse"],
    "message": ["browse", "remove"], "move_oldest": ["move"], "close_consumer": ["detach"],
    "commit_xid": ["prepare"], "rollback_xid": ["prepare"],
}  # fmt: skip
"""By method: control records whose fields its parameters are. Others have the method's name."""
_LIMITS: Mapping[str, Any] = {
    "most": Annotated[int, Field(ge=1, le=MOST_MOVED)],
    "partition": Annotated[int, Field(ge=0)] | None,
}
"""By parameter: what is no field of a control record."""
_OWN_TYPES = ("settings",)
"""Parameters whose type is the method's: the worker checks the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A method of `Admin`."""

    name: str
    summary: str
    description: str
    is_read: bool
    parameters: type[BaseModel]
    tells: Sequence[str]
    """The parameters that say who asks."""
    answer: TypeAdapter[Any] | None
    """The type of its answer; None: it has none."""
    is_list: bool
    is_iterator: bool

    @property
    def path(self) -> str:
        """Its path in the API."""
        return f"/{self.name.replace('_', '-')}"

    async def call(self, admin: Admin, given: BaseModel, by: str) -> Any:
        """Call the method.

        Args:
            admin: whose method.
            given: a valid model of its parameters.
            by: who asks.

        Returns:
            The answer as JSON has it; None if there is none.
        """
        fields = {name: getattr(given, name) for name in type(given).model_fields}
        key, after, limit = "", "", MOST_ITEMS
        if self.name in _PAGED:
            key, _ = _PAGED[self.name]
            after, limit = fields.pop("after"), fields.pop("limit")
        called = getattr(admin, self.name)(**fields, **dict.fromkeys(self.tells, by))
        if self.is_iterator:
            moved = 0
            async for so_far in called:
                moved = so_far
            return {"moved": moved}
        found = await called
        if self.answer is None or found is None:
            return None
        if not self.is_list:
            return plain(_with_names(found))
        if not key:
            return {"items": [plain(_with_names(each)) for each in found], "next": None}
        return _page([each for each in found if getattr(each, key) > after], key, limit)


def _page(left: Sequence[Any], key: str, limit: int) -> dict[str, Any]:
    """A page of what is left of a list, in order of a name. What has one name is not divided.

    Only what is on it is made JSON: of 100,000 queues that takes seconds (R122).
    """
    items: list[Any] = []
    room, last = LIST_BYTES, None
    for each in left:
        if (len(items) >= limit or room <= 0) and getattr(each, key) != last:
            return {"items": items, "next": last}
        last = getattr(each, key)
        items.append(plain(_with_names(each)))
        room -= len(json.dumps(items[-1]))
    return {"items": items, "next": None}


def _with_names(value: Any) -> Any:
    """Named tuples as mappings: in JSON their fields have names, too."""
    if isinstance(value, dict):
        return {name: _with_names(each) for name, each in value.items()}
    named = getattr(value, "_asdict", None)
    return value if named is None else named()


def _named(hint: Any) -> Any:
    """The type of what `_with_names` returns."""
    if get_origin(hint) is dict:
        return dict[str, _named(get_args(hint)[1])]  # type: ignore[misc]
    if hasattr(hint, "_fields"):
        return TypedDict(hint.__name__, get_type_hints(hint))  # type: ignore[operator]
    return hint


# --- deriving -------------------------------------------------------------------------------------


def _operation(name: str) -> Operation:
    method = getattr(Admin, name)
    parts = re.split(r"\n\n(?=Args:|Raises:|Yields:)", inspect.cleandoc(method.__doc__ or ""))
    summary, _, more = parts[0].partition("\n\n")
    result = get_type_hints(method)["return"]
    return Operation(
        name=name,
        summary=summary,
        description=more.replace("`homes`", "the operation `homes`"),
        is_read=name in READS,
        parameters=_parameters(name, _texts(parts)),
        tells=[each for each in _CALLER if each in inspect.signature(method).parameters],
        answer=_answer(name, result),
        is_list=get_origin(result) is list,
        is_iterator=get_origin(result) is AsyncIterator,
    )


def _answer(name: str, result: Any) -> TypeAdapter[Any] | None:
    if result is type(None):
        return None
    if get_origin(result) is AsyncIterator:
        return TypeAdapter(TypedDict("Moved", {"moved": int}))  # type: ignore[operator]
    if get_origin(result) is list:
        item = _named(get_args(result)[0])
        following = type(_PAGED[name][1]) if name in _PAGED else str
        page = {"items": list[item], "next": following | None}  # type: ignore[valid-type]
        return TypeAdapter(TypedDict(f"Page_of_{name}", page))  # type: ignore[operator]
    if get_origin(result) is not dict and type(None) in get_args(result):  # it is not found
        return TypeAdapter(get_args(result)[0])
    return TypeAdapter(_named(result))


def _texts(parts: Sequence[str]) -> dict[str, str]:
    """What the docstring says of each parameter."""
    args = next((part for part in parts if part.startswith("Args:")), "")
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", args, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def _parameters(name: str, texts: Mapping[str, str]) -> type[BaseModel]:
    """A model of what a method is given."""
    method = getattr(Admin, name)
    hints = get_type_hints(method)
    records = [MODELS[kind] for kind in _COMMANDS.get(name, [name]) if kind in MODELS]
    fields: dict[str, Any] = {}
    for each in inspect.signature(method).parameters.values():
        if each.name in ("self", *_CALLER, *_LEFT_OUT):
            continue
        hint = _type_of(each.name, hints[each.name], records)
        default = ... if each.default is inspect.Parameter.empty else each.default
        fields[each.name] = (hint, Field(default, description=texts.get(each.name)))
    if name in _PAGED:
        _, before_all = _PAGED[name]
        about = "`next` of the page before."
        fields["after"] = (type(before_all), Field(before_all, description=about))
        limit: Any = Annotated[int, Field(ge=1, le=MOST_ITEMS)]
        fields["limit"] = (limit, Field(1_000, description="Most items of the page."))
    model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    return model


def _type_of(parameter: str, hint: Any, records: Sequence[type[BaseModel]]) -> Any:
    """The type of a parameter: of the last record that has it, or else of the method."""
    found = _LIMITS.get(parameter, hint)
    for record in records:
        info = record.model_fields.get(parameter)
        if info is not None and parameter not in _OWN_TYPES:
            found = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
    return found


def _methods() -> list[str]:
    return [
        name
        for name, member in vars(Admin).items()
        if inspect.isfunction(member) and name[0] != "_" and not hasattr(AsyncResource, name)
    ]


OPERATIONS: Mapping[str, Operation] = {
    name: _operation(name) for name in _methods() if name not in INSTEAD
}
"""By name."""
