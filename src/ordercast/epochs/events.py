"""What a host tells a participant beside the events of machines, and what it is asked for beside their effects."""

from ordercast.core.configuration import Destination
from ordercast.core.effects import HostEffect
from ordercast.core.events import HostEvent
from ordercast.epochs.requests import Change, Planned, Wanted
from ordercast.epochs.setup import Setup
from ordercast.names import GroupId, SiteId

# Events.


class Begin(HostEvent, frozen=True, gc=False):
    """This site was started as one of a cluster whose first configuration is this; said again at every start."""

    first: Setup

    def __str__(self) -> str:
        return f"begins with {' '.join(self.first.sites)}"


class Suspected(HostEvent, frozen=True, gc=False):
    """The failure detector suspects a site; it may be wrong."""

    site: SiteId

    def __str__(self) -> str:
        return f"suspects {self.site}"


class Trusted(HostEvent, frozen=True, gc=False):
    """The failure detector trusts a site again."""

    site: SiteId

    def __str__(self) -> str:
        return f"trusts {self.site}"


class Tell(HostEvent, frozen=True, gc=False):
    """Tell what is new here without waiting for the next tick: somebody may wait for it to be stable."""

    def __str__(self) -> str:
        return "tells"


class Requested(HostEvent, frozen=True, gc=False):
    """An operator or an application asks for a change; `Answered` says what became of it."""

    change: Change

    def __str__(self) -> str:
        return f"asks: {self.change}"


class Made(HostEvent, frozen=True, gc=False):
    """The plan that was asked for."""

    planned: Planned

    def __str__(self) -> str:
        return f"planned {self.planned.setup.number}"


class Snapshotted(HostEvent, frozen=True, gc=False):
    """The application's state of groups, as it was when the configuration changed to this number."""

    number: int
    states: tuple[tuple[GroupId, bytes], ...]

    def __str__(self) -> str:
        return f"snapshot {self.number}"


# Effects.


class Plan(HostEffect, frozen=True, gc=False):
    """Make the classes of the next configuration (`epochs.change.plan_change`), and say `Made`; it may take long."""

    setup: Setup
    wanted: Wanted

    def __str__(self) -> str:
        return f"plan {self.setup.number + 1}"


class TakeSnapshot(HostEffect, frozen=True, gc=False):
    """Ask the application for the state of these groups as it is here in the stream, and say `Snapshotted`."""

    number: int
    groups: tuple[GroupId, ...]

    def __str__(self) -> str:
        return f"take a snapshot of {','.join(self.groups)}"


class ViewChanged(HostEffect, frozen=True, gc=False):
    """The members of a group change, at this place of the stream: the same one at all of them."""

    group: GroupId
    members: tuple[SiteId, ...]
    joined: tuple[SiteId, ...]
    left: tuple[SiteId, ...]
    epoch: int
    away: tuple[SiteId, ...]
    """Who was taken out because it is suspected, and comes back: what it has of the group stays good."""

    def __str__(self) -> str:
        return f"view {self.group}={','.join(self.members)} in {self.epoch}"


class RolledBack(HostEffect, frozen=True, gc=False):
    """The last so many deliveries did not happen; those of them that stay are delivered again."""

    many: int

    def __str__(self) -> str:
        return f"roll back {self.many}"


class Restored(HostEffect, frozen=True, gc=False):
    """This is the state of a group as the other members have it here; with `gap` what this site had of it is void."""

    group: GroupId
    count: int
    snapshot: bytes
    gap: bool
    epoch: int
    """It has everything of the classes that were open before this configuration."""

    def __str__(self) -> str:
        return f"{'gap, then ' if self.gap else ''}state of {self.group} after {self.count}"


class Answered(HostEffect, frozen=True, gc=False):
    """A request of this site was carried out, or refused for a reason."""

    request: int
    reason: str

    def __str__(self) -> str:
        return f"request {self.request}: {self.reason or 'done'}"


MAY_BE_SENT = "a site has lost its disk since this was posted first; whether it was sent is not known"
MAY_BE_DELIVERED = "who knew what was delivered has lost its disk; whether this was is not known"


class Dropped(HostEffect, frozen=True, gc=False):
    """A message of this site will not be sent: its destination is no more (errata 16), or it is old (errata 125)."""

    number: int
    reason: str
    groups: Destination
    body: bytes

    def __str__(self) -> str:
        return f"dropped {self.number}: {self.reason}"
