"""Keys go to the partitions that Kafka's own clients choose."""

from __future__ import annotations

import aiokafka.partitioner
from hypothesis import given
from hypothesis import strategies as st

from ringfaust.protocol.partitioner import murmur2, partition_of

# From Apache Kafka, UtilsTest.testMurmur2; Java prints them as signed numbers.
KAFKAS_OWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_murmur2_matches_kafkas_own_test_vectors() -> None:
    assert {data: murmur2(data) for data in KAFKAS_OWN} == {
        data: signed % 2**32 for data, signed in KAFKAS_OWN.items()
    }


@given(st.binary(max_size=70))
def test_murmur2_gives_the_hashes_of_aiokafka(data: bytes) -> None:
    assert murmur2(data) == aiokafka.partitioner.murmur2(data)


@given(st.text(max_size=20), st.integers(1, 50))
def test_a_key_goes_where_aiokafka_sends_it(key: str, partitions: int) -> None:
    choose = aiokafka.partitioner.DefaultPartitioner.__call__
    expected = choose(key.encode(), list(range(partitions)), [])
    assert partition_of(key, partitions) == partition_of(key.encode(), partitions) == expected
