"""What other settings would have evicted, from a lake in DuckDB. Starts no Spark."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ringfaust.core.catalog import Catalog, Fields
from ringfaust.spark.rewind import whatif
from ringfaust.spark.rewind.replay import IncompleteHistory
from ringfaust.spark.vendor import to_arrow_schema


def replay(
    connection: duckdb.DuckDBPyConnection,
    queue: str,
    catalog: Catalog,
    variants: Mapping[str, Fields],
) -> pa.Table:
    """Replay a queue's history, as `ringfaust spark rewind --ring-size` does.

    The connection is that of `open_duckdb`. `catalog` has the settings of the queue at the
    beginning of the history, and `variants` are changed settings by name.

    Returns:
        The departures in `history`, `as it was` and each variant, which the column `variant` tells.
        If `as it was` differs from `history`, the replay is not exact.

    Raises:
        BadSetting: what-if does not support a setting.
        IncompleteHistory: lines are missing.
    """
    checked = {name: whatif.check_changes(fields) for name, fields in variants.items()}
    lines = whatif.LINES.format(own="transitions", lines="transitions")
    query = f"{lines} AND t.queue = $queue ORDER BY {whatif.ORDER}"
    rows = connection.sql(query, params={"queue": queue}).to_arrow_reader()
    departures = whatif.replayer(catalog, checked)(rows)
    found = pa.Table.from_batches(departures, to_arrow_schema(whatif.DEPARTURE))
    incomplete = found.filter(pc.field("event") == whatif.INCOMPLETE).to_pylist()
    if incomplete:
        raise IncompleteHistory(incomplete[0]["reason"])
    return found
