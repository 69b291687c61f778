"""A handler: which arguments its function takes, how its body is read, and how it is called."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from ringfaust.app.context import Context
from ringfaust.client.errors import BadArgument
from ringfaust.errors import RingfaustError

Deserializer = Callable[[bytes], Any]


class BadBody(RingfaustError):
    """The body of a message is not what the handler takes. The text says what is wrong."""


class Handler:
    """A function that is called for each message.

    Args:
        function: a coroutine function, or a plain one, which runs in a thread.
        deserializer: reads the value; None: the annotation of the body says how.

    Raises:
        BadArgument: the function cannot be called with a body and a context.
    """

    def __init__(self, function: Callable[..., Any], deserializer: Deserializer | None) -> None:
        if not (inspect.isfunction(function) or inspect.ismethod(function)):
            raise BadArgument(f"handler {function!r} is not a function or method; wrap it in one")
        self.name = function.__qualname__
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            text = "is a generator, whose body nobody would run; do not yield in it"
            raise BadArgument(f"handler {self.name} {text}")
        self._function = function
        self._is_coroutine = inspect.iscoroutinefunction(function)
        self._deserializer = deserializer
        self._body = self._context = ""
        """The names of its parameters; empty: it does not take that."""
        hints = self._hints()
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise BadArgument(f"handler {self.name}: parameter {name} must have a name to use")
            if Context in (hints.get(name), *get_args(hints.get(name))):
                self._context = name
            elif not self._body:
                self._body = name
            elif parameter.default is parameter.empty:
                raise BadArgument(
                    f"handler {self.name}: parameter {name} is neither the first, which is the "
                    "body, nor annotated as Context; give it a default"
                )
        self._kind = hints.get(self._body, inspect.Parameter.empty)
        self._adapter = self._adapter_of()

    def _hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self._function, include_extras=True)
        except NameError as error:
            raise BadArgument(
                f"handler {self.name}: {error} in an annotation; define or import it before the "
                "handler, and not only for type checkers"
            ) from None

    def _adapter_of(self) -> TypeAdapter[Any] | None:
        """What checks the body; None: nothing does."""
        if self._kind in (inspect.Parameter.empty, Any):
            return None
        try:
            return TypeAdapter(self._kind)
        except PydanticSchemaGenerationError:
            if self._deserializer is not None:
                return None  # it returns what the handler takes
            raise BadArgument(
                f"handler {self.name}: {self._kind!r} cannot be read from JSON; give the "
                "subscriber a deserializer"
            ) from None

    def read(self, value: bytes | None) -> Any:
        """Return the body.

        A pydantic model, or another type that pydantic knows, is read from JSON; `str` is UTF-8
        text; `bytes`, and a body without an annotation, is the value as it is.

        Raises:
            BadBody: the value is not what the handler takes.
        """
        try:
            if value is None or self._deserializer is not None:
                read = None if value is None else self._deserializer(value)  # type: ignore[misc]
                return read if self._adapter is None else self._adapter.validate_python(read)
            if self._adapter is None or self._kind is bytes:
                return value
            if self._kind is str:
                return value.decode()
            return self._adapter.validate_json(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "body"
            more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
            raise BadBody(f"{place}: {first['msg']}{more}") from None
        except Exception as error:
            raise BadBody(f"body: {type(error).__name__}: {error}") from None

    async def call(self, context: Context) -> None:
        """Call the function, and wait until it returns. It raises what the function raises."""
        given = {self._body: context.body, self._context: context}
        given.pop("", None)
        if self._is_coroutine:
            await self._function(**given)
        elif inspect.isawaitable(returned := await _in_thread(self._function, given)):
            await returned  # a decorator has made a plain function of a coroutine function


async def _in_thread(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Call a plain function in a thread of its own, and return what it returns.

    A daemon, unlike the threads of `asyncio.to_thread`: it does not keep a process from ending
    that has waited for it long enough.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    variables = contextvars.copy_context()

    def finish(result: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((result, error))

    def run() -> None:
        result, error = None, None
        try:
            result = variables.run(function, **given)
        except BaseException as raised:  # whatever it is, it belongs to the message
            error = raised
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=run, name=function.__qualname__, daemon=True).start()
    result, error = await done
    if error is not None:
        raise error
    return result
