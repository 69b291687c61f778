"""Which messages wait for their time: an exit line does not say whether its message did."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ringfaust.spark.lake.tables import SCHEDULED, read
from ringfaust.spark.message_states import ENDED, STATE_AFTER

_KEY = SCHEDULED.schema.names


@dataclass(frozen=True, slots=True)
class FollowedMessages:
    """The messages that were scheduled before a batch, or are scheduled in it."""

    before: DataFrame
    """The table `scheduled`."""
    followed: DataFrame
    """The batch's lines about them, with the state before (`was`) and after; cached."""

    def left(self) -> DataFrame:
        """Lines with which a message left its queue while it was scheduled."""
        return self.followed.where((F.col("state") == ENDED) & (F.col("was") == "scheduled"))

    def waiting(self) -> DataFrame:
        """All messages that are scheduled after the batch."""
        begun = self.followed.where("is_last AND state = 'scheduled'").select(_KEY)
        return self.before.join(self.followed, _KEY, "left_anti").unionByName(begun)


def follow_scheduled(spark: SparkSession, root: str, lines: DataFrame) -> FollowedMessages:
    """Follow scheduled messages through a batch.

    Sequence numbers need no lifecycle here: nothing outlives the deletion of its queue.

    Args:
        spark: the session.
        root: the lake's folder or URI; `scheduled` is as before the batch.
        lines: the batch's transitions.
    """
    before = read(spark, root, "scheduled")
    lines = lines.where("sequence IS NOT NULL").withColumn("state", F.expr(STATE_AFTER))
    lines = lines.where("state IS NOT NULL")
    begun = lines.where("state = 'scheduled'").select(_KEY)
    of_message = Window.partitionBy(*_KEY).orderBy("offset", "line")
    followed = (
        lines.join(before.union(begun).distinct(), _KEY, "left_semi")
        .join(before.withColumn("waited", F.lit("scheduled")), _KEY, "left")
        .withColumns(
            {
                "was": F.coalesce(F.lag("state").over(of_message), "waited"),
                "is_last": F.lead("state").over(of_message).isNull(),
            }
        )
    )
    return FollowedMessages(before, followed.persist())
