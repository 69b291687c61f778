import ssl
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from typing import Any

from faust.types import AppT as AppT
from faust.types import TopicT
from faust.types.transports import ConsumerT, TransportT
from mode import Service

class SASLCredentials:
    def __init__(
        self,
        *,
        username: str | None = None,
        password: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        mechanism: str | None = None,
    ) -> None: ...

class SSLCredentials:
    def __init__(self, context: ssl.SSLContext | None = None) -> None: ...

class App(Service, AppT):
    _consumer: ConsumerT | None
    def __init__(self, id: str, **options: Any) -> None: ...
    @property
    def consumer(self) -> ConsumerT: ...
    @property
    def transport(self) -> Any: ...
    def agent(
        self, channel: Any = None, *, name: str | None = None
    ) -> Callable[[Callable[..., Any]], Any]: ...
    def task(self, fun: Callable[..., Any]) -> Any: ...
    def Table(self, name: str, **options: Any) -> dict[str, Any]: ...
    def topic(self, *topics: str, **options: Any) -> TopicT: ...
    def _new_transport(self) -> TransportT: ...
    async def _stop_consumer(self) -> None: ...

class Worker:
    spinner: object | None
    def __init__(
        self,
        app: AppT,
        *,
        quiet: bool = False,
        loglevel: str | None = None,
        redirect_stdouts: bool | None = None,
        logging_config: Mapping[str, Any] | None = None,
        loop: AbstractEventLoop | None = None,
    ) -> None: ...
    def execute_from_commandline(self) -> None: ...
