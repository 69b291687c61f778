"""Headers of records, as columns."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from ringfaust.protocol.cloud_events import ATTRIBUTES


def without_attributes(headers: Column) -> Column:
    """Do what `protocol.cloud_events.without_attributes` does."""
    is_ours = F.try_element_at(headers, F.lit(-1))["key"] == ATTRIBUTES[-1]
    length = F.size(headers) - len(ATTRIBUTES)
    return F.when(is_ours, F.slice(headers, F.lit(1), length)).otherwise(headers)
