"""Names on the cluster. Changing one would lose state, progress or fencing."""

from __future__ import annotations

import pytest

from ringfaust.config import WorkerConfig
from ringfaust.kafka import names
from ringfaust.protocol.names import client_transactional_id
from ringfaust.protocol.records import Role


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (names.topic_name("shop", Role.EVICTED), "shop.evicted"),
        (names.topic_name("shop", "control"), "shop.control"),
        (WorkerConfig(application="shop").topic(Role.CHANGELOG), "shop.changelog"),
        (names.worker_group("shop"), "shop"),
        (names.partition_transactional_id("shop", 3), "shop-3"),
        (names.repartition_transactional_id("shop", "orders", 3), "shop-hop/orders/3"),
        (names.redrive_transactional_id("shop"), "shop-redrive"),
        (names.session_transactional_id("shop", 3), "shop-sessions-3"),
        (names.backfill_group("shop", "job"), "shop-backfill-job"),
        (names.lake_redrive_group("shop", "job"), "shop-redrive-job"),
        (names.slice_transactional_id("shop-backfill-job", 3), "shop-backfill-job/3"),
        (names.admin_client_id("shop"), "shop-topics"),
        (client_transactional_id("shop", "host-1-ab"), "shop-host-1-ab"),
    ],
)
def test_names_on_the_cluster_never_change(name: str, expected: str) -> None:
    assert name == expected
