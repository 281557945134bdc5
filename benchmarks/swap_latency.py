"""HTW00's claim: until a message is ordered, a swap takes as long as counting when alone, and less in a crowd.

64 sites in one group, the same tree (heap-shaped, diameter 11) for all; every link takes 1. So many sites multicast at
the same time, or one after the other; ordered means that the message is multicast with its place. Then the same on
three shapes of trees of 256 sites, with 1 to 256 senders at once.

Run: python -m benchmarks.swap_latency
"""

import math
import sys
from pathlib import Path

from benchmarks.results import record, table
from matplotlib.figure import Figure
from tests.support.latency import until_numbered, until_ordered

from ordercast.names import Shape

PROTOCOLS = ["arrow", "arrow-counting", "combining", "combining-counting", "hybrid"]
SENDERS = (1, 4, 16, 64, 256)
SHAPES = (Shape.BALANCED, Shape.STAR, Shape.PATH)
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "swap-latency.svg"
NETWORK = "bitonic-counting"
COLOURS = {"arrow": "#4878a8", "combining": "#b5653a", "hybrid": "#5f8f5f", "bitonic": "#8a6fa8"}


def shapes() -> tuple[list[list[object]], int]:
    """Measure on three shapes, and draw it; returns the rows, and where a swap is slower than what it truncates."""
    rows: list[list[object]] = []
    slower = 0
    figure = Figure(figsize=(10, 3.4), facecolor="white", layout="constrained")
    for panel, shape in zip(figure.subplots(1, 3, sharey=True), SHAPES, strict=True):
        means: dict[str, list[float]] = {}
        for senders in SENDERS:
            for protocol in PROTOCOLS:
                rounds = 3 if senders < 64 else 1
                endless = shape is Shape.PATH and protocol == "combining-counting" and senders > 4
                mean = math.nan if endless else until_ordered(protocol, senders, True, rounds, 256, shape)[0]
                means.setdefault(protocol, []).append(mean)
            means.setdefault(NETWORK, []).append(until_numbered(senders, 3, 256, shape))
            slower += min(means["arrow"][-1], means["combining"][-1]) > means[NETWORK][-1]
            for swap in ("arrow", "combining"):
                slower += means[swap][-1] > means[f"{swap}-counting"][-1]
            found = [means[protocol][-1] for protocol in (*PROTOCOLS, NETWORK)]
            rows.append([str(shape), senders, *("not tried" if math.isnan(mean) else f"{mean:.1f}" for mean in found)])
            print(rows[-1], flush=True)
        for protocol, values in means.items():
            of, _, counts = protocol.partition("-")
            panel.plot(SENDERS, values, "--" if counts else "-", color=COLOURS[of], marker=".", label=protocol)
        panel.set(xscale="log", yscale="log", xlabel="senders at once", title=str(shape))
    figure.axes[0].set_ylabel("link latencies until ordered, mean")
    figure.axes[-1].legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE)
    return rows, slower


def main() -> int:
    rows: list[list[object]] = []
    broken = 0
    for senders, at_once in [(1, True), (16, False), *((count, True) for count in (2, 4, 8, 16, 32, 64))]:
        figures = {protocol: until_ordered(protocol, senders, at_once) for protocol in PROTOCOLS}
        when = "one after the other" if not at_once or senders == 1 else "at once"
        broken += figures["arrow"][2] > 11
        if when == "at once":
            broken += figures["arrow"][0] >= figures["arrow-counting"][0]
            broken += figures["combining"][0] >= figures["combining-counting"][0]
        else:
            broken += figures["arrow"][0] != figures["arrow-counting"][0]
        means = [f"{figures[p][0]:.2f} ({figures[p][1]:.0f})" for p in PROTOCOLS]
        rows.append([senders, when, *means, figures["arrow"][2]])
        print(rows[-1], flush=True)
    head = ["senders", "", *(f"{p} mean (worst)" for p in PROTOCOLS), "most arrow hops"]
    told = "Latency until ordered, in link latencies; 64 sites, one group, one tree of diameter 11, 20 rounds, tick 1."
    of_shapes, slower = shapes()
    again = (
        "The same on trees of 256 sites of three shapes, mean, all senders at once"
        " ([picture](../docs/pictures/swap-latency.svg)). On a path a combining counter locks one node after the other:"
        " 3,906 latencies with 16 senders, and the more there are the longer it takes to simulate. *bitonic-counting*:"
        " a counting network of width 16 (depth 10) whose nodes are spread over the sites, requests between them along"
        " the tree: no place sees all requests, and every request makes ten steps."
    )
    towns: list[list[object]] = []
    for protocol in ("arrow", "combining", "hybrid"):
        for by_source in (False, True):
            found = [until_ordered(protocol, 16, True, 5, 64, s, towns=4, by_source=by_source)[0] for s in Shape]
            towns.append([protocol, "source" if by_source else "finder", *(f"{mean:.1f}" for mean in found)])
            broken += found[list(Shape).index(Shape.LATENCY)] > found[0]
    far = (
        "64 sites in four towns, 0.1 within a town and 10 between two, names in turn; 16 senders at once; mean until"
        " ordered. *By*: who multicasts the pair, the source (HTW00 §3) or who finds the predecessor (§4)."
    )
    of_towns = ["", far, "", *table(["protocol", "by", *map(str, Shape)], towns)]
    both = [*table(head, rows), "", told, "", again, "", *table(["tree", "senders", *PROTOCOLS, NETWORK], of_shapes)]
    both += of_towns
    record("Swap against counting (HTW00)", "python -m benchmarks.swap_latency", both)
    broken += slower
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
