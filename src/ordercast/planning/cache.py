"""Plans on disk: what one site has planned, all others read, and nobody runs unjudged.

The file is named after everything that was asked for, so another membership, level or planner never finds it. This is
the one file of the room that writes; planning itself stays a function of its arguments.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ordercast.errors import InputError
from ordercast.names import ClassRule, GroupId, Level, Planner, SiteId
from ordercast.planning.make import check_plan
from ordercast.planning.plan import Plan, read_plan

# What a plan may cost: steps, not seconds, because every site must find the same one. On random families of 5 to 600
# memberships more steps do not find a mean depth lower by 3 %.
STEPS_PER_MEMBERSHIP, STEPS_AT_MOST = 1_000, 200_000


class Wanted(msgspec.Struct, frozen=True):
    """What is asked of a plan: two equal ones find one file."""

    groups: Mapping[GroupId, Sequence[SiteId]]
    unions: Sequence[Sequence[GroupId]]
    level: Level
    rule: ClassRule
    planner: Planner | None = None
    """By default chosen by the size of the table."""
    max_load: int | None = None

    def members(self) -> dict[GroupId, list[SiteId]]:
        """Return groups and unions with their members, all sorted."""
        found = {group: sorted(sites) for group, sites in sorted(self.groups.items())}
        for union in self.unions:
            names = sorted(set(union))
            found["+".join(names)] = sorted({site for name in names for site in self.groups[name]})
        return found

    def path(self, folder: Path) -> Path:
        """Return where its plan is kept."""
        asked = [self.planner, self.level, self.rule, self.max_load, sorted(self.members().items())]
        return folder / f"plan-{hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:16]}.json"


def cached_plan(folder: Path, wanted: Wanted) -> Plan:
    """Return the plan that is kept in a folder, or make it and keep it; it is judged either way.

    Raises InputError when the kept plan is not one for what is wanted, and PlanError when none can be made.
    """
    path = wanted.path(folder)
    if not path.exists():
        return _kept(path, _made(wanted))
    plan = read_plan(path)
    try:
        check_plan(plan, wanted.members(), wanted.level, f"{path}: not a plan for this cluster")
    except InputError as error:
        raise InputError(f"{error}; remove it, and it is made again") from None
    return plan


def _made(wanted: Wanted) -> Plan:
    from ordercast.membership.table import Membership  # planning is heavy to import, and needed once
    from ordercast.planning.make import make_plan
    from ordercast.planning.planners import default_planner
    from ordercast.planning.request import Budget, Request

    membership = Membership.of(wanted.groups).with_unions(wanted.unions)
    planner = wanted.planner or default_planner(membership, wanted.level, wanted.rule)
    budget = Budget(steps=min(STEPS_PER_MEMBERSHIP * len(membership), STEPS_AT_MOST))
    request = Request(planner, wanted.level, wanted.rule, max_load=wanted.max_load, budget=budget)
    return make_plan(membership, request).plan


def _kept(path: Path, plan: Plan) -> Plan:
    """Write a plan so that others find all of it or nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(msgspec.json.encode(plan))
        new.replace(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return plan
