"""HTW00's claim: until a message is ordered, a swap takes as long as counting when alone, and less in a crowd.

64 sites in one group, the same tree (heap-shaped, diameter 11) for all; every link takes 1. So many sites multicast at
the same time, or one after the other; ordered means that the message is multicast with its place.

Run: python -m benchmarks.swap_latency
"""

import sys

from benchmarks.results import record, table
from tests.support.latency import until_ordered


def main() -> int:
    rows: list[list[object]] = []
    broken = 0
    protocols = ["arrow", "arrow-counting", "combining", "combining-counting", "hybrid"]
    for senders, at_once in [(1, True), (16, False), *((count, True) for count in (2, 4, 8, 16, 32, 64))]:
        figures = {protocol: until_ordered(protocol, senders, at_once) for protocol in protocols}
        when = "one after the other" if not at_once or senders == 1 else "at once"
        broken += figures["arrow"][2] > 11
        if when == "at once":
            broken += figures["arrow"][0] >= figures["arrow-counting"][0]
            broken += figures["combining"][0] >= figures["combining-counting"][0]
        else:
            broken += figures["arrow"][0] != figures["arrow-counting"][0]
        means = [f"{figures[p][0]:.2f} ({figures[p][1]:.0f})" for p in protocols]
        rows.append([senders, when, *means, figures["arrow"][2]])
        print(rows[-1], flush=True)
    head = ["senders", "", *(f"{p} mean (worst)" for p in protocols), "most arrow hops"]
    told = "Latency until ordered, in link latencies; 64 sites, one group, one tree of diameter 11, 20 rounds, tick 1."
    record("Swap against counting (HTW00)", "python -m benchmarks.swap_latency", [*table(head, rows), "", told])
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
