from typing import Any

from faust.tables.manager import TableManager
from faust.types import AppT
from mode import Service

class Recovery(Service):
    app: AppT
    def __init__(
        self, app: AppT, tables: TableManager, *, beacon: Any = None, loop: Any = None
    ) -> None: ...
    async def _resume_streams(self, generation_id: int = 0) -> None: ...
