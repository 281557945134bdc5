"""The central site as a plan: a tree of depth 1 per class (GS88 §4, after [CM84])."""

import numpy as np

from ordercast.planning.forest import ClassGraph, Forest


def central(graph: ClassGraph) -> Forest:
    """Put the site in most groups of each class (ties: the first name) above all others; it orders every group."""
    degree = np.diff(graph.node_ptr)
    order = np.lexsort((np.arange(len(degree)), -degree, graph.node_class))
    centre = order[np.searchsorted(graph.node_class[order], np.arange(int(graph.labels.max()) + 1))].astype(np.int32)
    parent = centre[graph.node_class]
    parent[centre] = -1
    return Forest.of(graph, parent, entry=centre[graph.labels])
