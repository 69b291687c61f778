from faust.tables.recovery import Recovery
from faust.types import AppT
from mode import Service

class TableManager(Service):
    app: AppT
    @property
    def recovery(self) -> Recovery: ...
    async def _update_channels(self) -> None: ...
