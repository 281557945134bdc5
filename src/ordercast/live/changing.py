"""What a site does whose groups change: where it starts, whom it finds where, plans, states of applications."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.client.values import Receipt
from ordercast.epochs.change import first_setup, plan_change
from ordercast.epochs.requests import AddSite, Change, Create, Planned
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.errors import BugError, InputError, LocalError, bounded
from ordercast.history.store import History
from ordercast.live.config import Cluster, described
from ordercast.live.inbox import Inbox
from ordercast.live.links import BEATS
from ordercast.live.rules import NAMES, is_name, wrong_address, wrong_site
from ordercast.names import Delivery, GroupId, Planner, Policy, SiteId
from ordercast.node import inputs as io
from ordercast.node.changing import ChangingNode
from ordercast.node.settings import Settings
from ordercast.node.status import Epochs, epochs

if TYPE_CHECKING:
    from ordercast.live.site import Site

REQUESTS_AT_MOST = 256  # of one site, not answered
STATE_AT_MOST = 16 * 2**20  # bytes of a group's state: it travels in one frame
Snapshot = Callable[[GroupId], Awaitable[bytes]]
"""An application's state of a group, as it is after everything that it has read."""


def where(sites: str, clients: str = "") -> str:
    """Return the address of a site as a configuration holds it: for sites, and for clients where it takes any."""
    return f"{sites}/{clients}" if clients else sites


def split(address: str) -> tuple[str, str]:
    """Return the addresses for sites and for clients."""
    sites, _, clients = address.partition("/")
    return sites, clients


def setup_of(cluster: Cluster) -> Setup:
    """Return the configuration that a cluster begins with."""
    policy = Policy(cluster.policy)
    groups = {}
    for name, members in cluster.groups.items():
        own = cluster.options.get(name)
        of_group = (own.policy if own is not None else None) or policy
        usual = Delivery.SAFE if of_group is Policy.AVAILABLE else Delivery.AGREED
        delivery = (own.delivery if own is not None else None) or cluster.delivery or usual
        planner = cluster.planner or Planner.ELIMINATION
        named = tuple(sorted(set(cluster.sequencers)))
        groups[name] = GroupSetup(
            tuple(sorted(members)),
            cluster.protocol,
            planner,
            of_group,
            delivery,
            named,
            cluster.migrate,
            cluster.direct_bytes,
            cluster.copies,
        )
    unions = sorted(tuple(sorted(set(union))) for union in cluster.unions)
    try:
        made = first_setup(cluster.sites, groups, cluster.level, unions, causal=cluster.causal)
    except LocalError as error:
        raise InputError(str(error)) from None
    found = {site: where(address, cluster.clients.get(site, "")) for site, address in sorted(cluster.sites.items())}
    return msgspec.structs.replace(made, sites=found)


def _address(address: str) -> dict[str, str]:
    sites, clients = split(address)
    return {"sites": sites, "clients": clients}


def _group(setup: Setup, name: GroupId) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(msgspec.structs.asdict(setup.groups[name]))
    class_id = setup.class_of.get(name)
    by = setup.classes[class_id].ordered_by(name) if class_id is not None else None
    return {**found, "there": list(setup.members(name)), "class": str(class_id or ""), "ordered_by": by or ""}


def _bounded(group: GroupId, state: bytes) -> bytes:
    if len(state) > STATE_AT_MOST:
        raise LocalError(f"the state of {group} has {len(state)} bytes; at most {STATE_AT_MOST} are allowed")
    return state


class Changes:
    """The part of a live site that a fixed one does not have."""

    def __init__(self, site: "Site", snapshot: Snapshot | None, *, joins: bool) -> None:
        self.site, self.snapshot, self.joins = site, snapshot, joins
        self.wanted: list[io.TakeSnapshot] = []  # states that nobody was asked for yet
        self.givers: list[Inbox] = []
        self._planning: set[asyncio.Future[Planned]] = set()

    def node(self, history: History) -> ChangingNode:
        """Return the node; a site without a history begins with the file, or asks the others."""
        cluster, site = self.site.cluster, self.site
        settings = Settings(
            cluster.name, frozenset(cluster.sites), durable=True, plan="changes", described=described(cluster),
            limits=cluster.limits, changes=True, suspect_beats=BEATS, data=str(cluster.data_folder),
            exporting=cluster.export is not None,
        )  # fmt: skip
        first = None if self.joins else setup_of(cluster)
        site.carrier.does |= {
            io.Plan: self._plan,
            io.TakeSnapshot: self._take_snapshot,
            io.Dropped: self._dropped,
        }
        return ChangingNode(site.me, settings, first, history, site.clock)

    def _dropped(self, output: io.Dropped) -> None:
        self.site.note("messages.dropped", groups=output.groups, reason=output.reason)
        if self.site.exporter is not None:
            self.site.exporter.dropped(output)

    def started(self) -> None:
        """A site that is not where the others look for it says so."""
        node, setup, mine = self.site.node, self.setup, self.address
        if self.site.me in setup.sites and setup.sites[self.site.me] != mine:
            self.site.note("site.moved", address=mine)
            for peer in sorted(node.peers.needed):
                self.site.dialer.dial(peer)
            self.site.feed(io.Ask(AddSite(self.site.me, mine)))

    @property
    def setup(self) -> Setup:
        """The configuration that this site is in."""
        node = self.site.node
        assert isinstance(node, ChangingNode)
        return node.participant.setup

    def status(self) -> Epochs:
        """Return which configuration this site is in, who leads, and what its classes are doing."""
        node = self.site.node
        assert isinstance(node, ChangingNode)
        return epochs(node.participant)

    @property
    def address(self) -> str:
        """Where this site is."""
        cluster, me = self.site.cluster, self.site.me
        return where(cluster.sites[me], cluster.clients.get(me, ""))

    def address_of(self, peer: SiteId) -> tuple[str, int]:
        """Return where a peer is: as the configuration says, or as this site was told when it started."""
        known = self.setup.sites.get(peer, "") or self.site.cluster.sites.get(peer, "")
        host, _, port = split(known)[0].rpartition(":")
        if not host:
            raise LocalError(f"nobody knows where {peer} is")
        return host.strip("[]"), int(port)

    def described(self) -> dict[str, Any]:
        """Return the configuration in force, as plain values."""
        site, node = self.site, self.site.node
        assert isinstance(node, ChangingNode)
        here = node.participant
        setup = here.setup
        return {
            "cluster": site.cluster.name,
            "number": setup.number,
            "level": str(setup.level),
            "causal": setup.causal,
            "states": site.cluster.states,
            "suspect_after": site.cluster.suspect_after,
            "unions": ["+".join(union) for union in setup.unions],
            "council": list(setup.council),
            "manager": here.leader,
            "suspected": sorted(here.suspected),
            "joining": sorted(here.installing.states),
            "away": {name: list(groups) for name, groups in setup.away.items()},
            "sites": {name: _address(at) for name, at in setup.sites.items()},
            "groups": {name: _group(setup, name) for name in setup.groups},
        }

    def others(self) -> list[str]:
        """Return where clients reach the other sites."""
        found = [split(address)[1] for site, address in self.setup.sites.items() if site != self.site.me]
        return [address for address in found if address]

    async def request(self, change: Change) -> None:
        """Ask for a change, and wait until it is in force; raises LocalError when it is refused."""
        for problem in self._wrong(change):
            raise LocalError(problem)
        node = self.site.node
        assert isinstance(node, ChangingNode)
        if len(node.participant.asked_for) >= REQUESTS_AT_MOST:
            raise LocalError(f"{REQUESTS_AT_MOST} requests wait at {self.site.me} already")
        done: asyncio.Future[list[Receipt]] = self.site.loop.create_future()
        self.site.feed(io.Ask(change, done))
        await done

    def _wrong(self, change: Change) -> Iterator[str]:
        """Yield what no configuration may hold: names and addresses, by the rules of the file."""
        if isinstance(change, Create) and not is_name(change.group):
            yield f"{bounded(change.group)!r} is no name for a group: {NAMES}"
        if isinstance(change, AddSite):
            yield from wrong_site(change.site)
            sites, clients = split(change.address)
            for table, address in (("sites", sites), *((("clients", clients),) if clients else ())):
                yield from wrong_address(self.site.cluster, table, change.site, address)
            taken = {split(at)[0]: site for site, at in self.setup.sites.items() if site != change.site}
            if sites in taken:
                yield f"[sites] {change.site}: {bounded(sites)} is the address of {taken[sites]}"

    # What the node asks for.

    def _plan(self, output: io.Plan) -> None:
        """Plan off the loop: it may take long."""
        work = self.site.loop.run_in_executor(None, plan_change, output.setup, output.wanted)
        self._planning.add(work)
        work.add_done_callback(self._planned)

    def _planned(self, work: "asyncio.Future[Planned]") -> None:
        self._planning.discard(work)
        if work.cancelled():
            return
        error = work.exception()
        if error is not None:
            self.site.feed(io.DiskFailed(BugError(f"a plan could not be made: {type(error).__name__}: {error}")))
        else:
            self.site.feed(io.Planned(work.result()))

    def _take_snapshot(self, output: io.TakeSnapshot) -> None:
        if not self.site.cluster.states:
            self.site.feed(io.Snapshotted(output.number, tuple((group, b"") for group in output.groups)))
            return
        self.wanted.append(output)
        for inbox in self.givers:
            inbox.wake()

    def giver(self, inbox: Inbox, snapshot: Snapshot) -> None:
        """A reader gives states: it is asked between two messages."""
        self.givers.append(inbox)
        inbox.between = lambda: self.give(inbox, snapshot)

    def wants(self, inbox: Inbox) -> io.TakeSnapshot | None:
        """Return the state that a reader is to give now: it has read all before, and reads all those groups."""
        reader = inbox.reader
        for output in self.wanted:
            reads = reader.groups is None or reader.groups.issuperset(output.groups)
            if reads and reader.next >= output.position and not reader.past and not reader.lots:
                return output
        return None

    async def give(self, inbox: Inbox, snapshot: Snapshot) -> None:
        """Ask an application for what it is to give, if anything; it has read everything before."""
        while (output := self.wants(inbox)) is not None:
            self.wanted.remove(output)
            try:
                states = tuple([(group, _bounded(group, await snapshot(group))) for group in output.groups])
            except BaseException:  # whatever it is, also that nobody waits any more: it goes to who waits
                self.wanted.append(output)  # another reader, or the next one
                raise
            self.site.feed(io.Snapshotted(output.number, states))
