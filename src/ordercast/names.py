"""Names that everything else uses: sites, groups, levels of order and the classes that keep them."""

from enum import StrEnum
from typing import NamedTuple, TypeAlias

SiteId: TypeAlias = str
GroupId: TypeAlias = str


class ClassId(NamedTuple):
    """Names a class of groups that are ordered together: given once, never used again."""

    epoch: int
    """The configuration in which the class was opened; stamps begin with it."""
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.epoch}.{self.index}"


class Level(StrEnum):
    """What is promised about the order of messages that several sites share."""

    TOTAL = "total"
    """Any two sites deliver their common messages in the same order (GS88 §1 property c)."""
    ACYCLIC = "acyclic"
    """The union of all sites' orders has no cycle, so one serial order exists. Strictly stronger."""


class ClassRule(StrEnum):
    """Which groups are ordered together."""

    S1 = "s1"
    """Connected groups: the papers' trees. Safe for every level, needlessly coarse."""
    S2 = "s2"
    """Groups that share two or more sites, transitively (KIN §4.2). Exact for `total`."""
    BLOCKS = "blocks"
    """Groups in one biconnected block of the incidence graph, transitively. Exact for `acyclic`."""

    @classmethod
    def for_level(cls, level: Level) -> "ClassRule":
        """Return the finest rule that is safe for the level."""
        return cls.S2 if level is Level.TOTAL else cls.BLOCKS


class Objective(StrEnum):
    """What the search of `best` makes small."""

    DELAY = "delay"
    EXTRA = "extra"
    LOAD = "load"


class Shape(StrEnum):
    """The tree of a swap object (HTW00 §4 takes any spanning tree)."""

    BALANCED = "balanced"
    """Two children each: its depth is logarithmic."""
    STAR = "star"
    """All below the root: two hops at most, and the root carries everything."""
    PATH = "path"
    """One below the other: nobody has more than two neighbours."""
    LATENCY = "latency"
    """A minimum spanning tree of the latencies between sites; its root is the site that is nearest to all."""


class Planner(StrEnum):
    """The planners by name."""

    GREEDY = "greedy"
    """GS88 App. I, repaired."""
    ELIMINATION = "elimination"
    """The same greedy rule without the intersecter rule: near-linear, and shallower on connected groups."""
    METAGROUP = "metagroup"
    """MGT §4.1."""
    CENTRAL = "central"
    """One site per class orders everything."""
    BEST = "best"
    """Our search."""


class Policy(StrEnum):
    """What happens to the groups of a site that is suspected to have failed (GS88 §5.2)."""

    AVAILABLE = "available"
    """It is taken out of its groups, and the others go on (GS88 §5.2.1)."""
    ATOMIC = "atomic"
    """Nobody is taken out but by an operator: the groups that need the site wait (GS88 §5.2.2)."""


class Delivery(StrEnum):
    """When a message is handed to the application."""

    AGREED = "agreed"
    """As soon as it is ordered; a site that was cut off may have to roll it back."""
    COPIED = "copied"
    """When `copies` members have it, durably: rolled back only when so many of them fail at once (KIN §4.1)."""
    SAFE = "safe"
    """When every member has it, durably: it is never rolled back."""
