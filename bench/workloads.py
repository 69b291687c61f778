"""The workloads of `make bench`, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator

from bench.model import Load

ACK_MODES = ("individual", "dups_ok", "client", "none")
WINDOWS = (1, 10, 100)
RATES = (100, 1_000, 10_000)
QUICK = ("evict", "cycle")


def workloads(scale: float) -> dict[str, list[Load]]:
    """Return the loads of each workload. `scale` multiplies the numbers of messages."""

    def count(messages: int) -> int:
        return max(int(messages * scale), 2_000)

    return {
        "evict": [Load("evict", "", "evict", count(300_000))],
        "cycle": list(_cycles(count(100_000))),
        "window": [
            Load("window", f"credit {credit}", "cycle", max(int(credit * 1_000 * scale), 200),
                 ring=-1, credit=credit)
            for credit in WINDOWS
        ],
        "latency": [
            Load("latency", f"{rate:,}/s", "latency", max(int(rate * 15 * scale), 100),
                 ring=-1, rate=rate)
            for rate in RATES
        ],
        "hold": [
            Load("hold", f"{consumers} consumers, 2 ms each", "hold", count(200_000),
                 consumers=consumers, credit=100, work_ms=2)
            for consumers in (1, 4)
        ],
        "rings": [
            Load("rings", "one ring", "evict", count(300_000)),
            *(_rings(max(int(rings * scale), 10)) for rings in (10_000, 100_000)),
        ],
        "bodies": [Load("bodies", "10 kB", "evict", count(50_000), body_bytes=10_000)],
        "scheduled": [
            Load("scheduled", f"due at once, credit {credit:,}", "scheduled", count(100_000),
                 ring=-1, credit=credit)
            for credit in (1_000, 10_000)
        ],
        "selectors": [
            Load("selectors", "one of four matches", "cycle", count(50_000), ring=-1,
                 selector="color = 'red'")
        ],
        "priorities": [Load("priorities", "ten levels", "cycle", count(50_000), ring=-1,
                            priorities=10)],
        "workers": [
            Load("workers", f"{workers} workers", "evict", count(300_000), rings=16,
                 workers=workers, ringfaust_only=True)
            for workers in (1, 2)
        ],
        "backlog": [
            Load("backlog", "5 million", "evict", count(5_000_000), ringfaust_only=True)
        ],
        "restart": [
            Load("restart", "1 million held", "restart", count(1_000_000), ring=count(1_000_000),
                 ringfaust_only=True)
        ],
    }  # fmt: skip


def _rings(rings: int) -> Load:
    """Messages that fill every ring by key, and half as many again, which evict."""
    return Load("rings", f"{rings:,} rings by key", "evict", 15 * rings, ring=10, rings=rings)


def _cycles(messages: int) -> Iterator[Load]:
    """The default mode, then every other. What other peers do is measured once, with the first."""
    yield Load("cycle", "individual, credit 1,000", "cycle", messages, ring=-1)
    for mode in ACK_MODES[1:]:
        yield Load("cycle", f"{mode}, credit 1,000", "cycle", messages, ring=-1, ack_mode=mode,
                   ringfaust_only=True)  # fmt: skip
