"""What an ordered multicast costs: N and D of GS88 §4, Tables 1 and 2, and the load of three methods.

N counts messages and D is the time until the last member can deliver, for one message from a source outside. In the
point-to-point network a send takes P to put on the network and L to arrive; in the broadcast network it takes T.
"""

from dataclasses import dataclass

import numpy as np

from ordercast.membership.table import Membership, Offsets
from ordercast.planning.forest import Forest


@dataclass(frozen=True)
class Terms:
    """A cost as a sum of terms: messages N, and D = latencies * L + sends * P (or broadcasts * T)."""

    messages: float
    latencies: float = 0.0
    sends: float = 0.0
    broadcasts: float = 0.0

    def delay(self, latency: float = 1.0, processing: float = 0.0, broadcast: float = 1.0) -> float:
        """Return D for given L, P and T."""
        return self.latencies * latency + self.sends * processing + self.broadcasts * broadcast


def point_to_point(members: float, depth: float, extra: float) -> dict[str, Terms]:
    """GS88 Table 1 for a group of n members, depth d and ε extra nodes; the propagation delay is an upper bound."""
    return {
        "two-phase": Terms(3 * members, latencies=3, sends=2 * members + 1),
        "centralized": Terms(members, latencies=2, sends=members),
        "propagation": Terms(members + extra, latencies=depth + 1, sends=members + extra),
    }


def broadcast(members: float, depth: float) -> dict[str, Terms]:
    """GS88 Table 2: every message reaches all sites at once, and there is one on the network at a time."""
    return {
        "two-phase": Terms(members + 2, broadcasts=members + 2),
        "centralized": Terms(2, broadcasts=2),
        "propagation": Terms(depth + 1, broadcasts=depth + 1),
    }


def two_phase_load(membership: Membership) -> Offsets:
    """Messages per site when each group gets one from outside: the message, the proposal, the decision (GS88 §4.1)."""
    return 3 * np.diff(membership.site_ptr)


def mean_terms(forest: Forest) -> dict[str, Terms]:
    """Return Table 1 averaged over the groups of a forest."""
    sizes = np.diff(forest.graph.membership.group_ptr)
    return point_to_point(float(sizes.mean()), float(forest.depth.mean()), float(forest.extra.mean()))
