"""A run over time: deliveries a second and latency, with the time that a site was down."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ordercast.show.look import FAINT, INK, picture_path, save

BIN_S = 0.25


def draw_timeline(
    delivered: NDArray[np.float64], latency_ms: NDArray[np.float64], down: tuple[float, float], path: Path, who: str
) -> None:
    """Draw when deliveries happened and how long after they were sent; times in seconds from the start."""
    figure = Figure(figsize=(9.5, 4.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    end = max(float(delivered.max()), down[1]) + BIN_S
    counts, edges = np.histogram(delivered, bins=np.arange(0.0, end + BIN_S, BIN_S))
    above.stairs(counts / BIN_S, edges, fill=True, color="#4c78a8", alpha=0.8)
    above.set_ylabel("deliveries / s", fontsize=9)
    below.scatter(delivered, np.maximum(latency_ms, 0.1), s=5, color="#4c78a8", alpha=0.5, linewidths=0)
    below.set_yscale("log")
    below.yaxis.set_major_formatter("{x:g}")
    below.set_ylabel("latency, ms", fontsize=9)
    below.set_xlabel("seconds", fontsize=9)
    for panel in (above, below):
        panel.axvspan(*down, color="#f4c7c3", alpha=0.6, linewidth=0)
        panel.grid(color=FAINT, alpha=0.3, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    above.set_title(f"{who} is down in the red span: killed with -9, then started again", fontsize=10, color=INK)
    save(figure, picture_path(path))
