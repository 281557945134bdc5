"""What to ask of a planner. Light to import: no kernel is loaded for it."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ordercast.errors import InputError
from ordercast.names import ClassRule, Level, Objective, Planner

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Budget:
    """How long to search: in seconds, or in steps, which give the same plan on any machine."""

    seconds: float = 2.0
    steps: int | None = None


def _named(kind: type[StrEnum], name: str) -> StrEnum:
    try:
        return kind(name)
    except ValueError:
        raise InputError(f"{kind.__name__.lower()} is one of {', '.join(kind)}, not {name!r}") from None


@dataclass(frozen=True)
class Request:
    """What to plan for: the promise, and what to make small at what price."""

    planner: Planner = Planner.BEST
    level: Level = Level.ACYCLIC
    classes: ClassRule | None = None
    objective: Objective = Objective.DELAY
    max_load: int | None = None
    weights: Weights | None = None
    budget: Budget = Budget()
    seed: int = 0

    def __post_init__(self) -> None:
        """Take names for enums too: `Request(planner="best")`."""
        for name, kind in (("planner", Planner), ("level", Level), ("objective", Objective)):
            object.__setattr__(self, name, _named(kind, getattr(self, name)))
        if self.classes is not None:
            object.__setattr__(self, "classes", _named(ClassRule, self.classes))

    @property
    def class_rule(self) -> ClassRule:
        """The rule that was asked for, or the finest one that keeps the level."""
        return self.classes or ClassRule.for_level(self.level)
