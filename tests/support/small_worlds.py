"""Small worlds of nodes by hand: who is where, what happens when; for tests that name one thing."""

from typing import Any

from msgspec.structs import replace

from ordercast.client.values import AckLevel, Receipt
from ordercast.errors import OrdercastError
from ordercast.membership.table import Membership
from ordercast.names import GroupId, Planner, SiteId
from ordercast.node import inputs as io
from ordercast.node.readers import Reader
from ordercast.node.settings import Limits
from ordercast.node.status import Status, status
from ordercast.protocols.registry import MACHINES
from ordercast.sim.nodes import Host, World
from ordercast.sim.scenario import Scenario, deploy
from tests.support.node_campaign import PATIENCE, settings


class SmallWorld:
    """Groups are words of one-letter sites: `x="ab"`; every letter of `sites` may send."""

    def __init__(self, sites: str, limits: Limits | None = None, protocol: str = "propagation", **groups: str) -> None:
        members = Membership.of({group: list(letters) for group, letters in groups.items()})
        kind = MACHINES[protocol]
        found = deploy(Scenario(members, protocol, planner=Planner.CENTRAL, receipts=kind.receipts))
        configuration = replace(found.groups, sources=tuple(sorted(sites)))
        deployment = replace(found, groups=configuration, patience=PATIENCE)
        self.lines: list[str] = []
        self.world = World(deployment, settings(deployment, limits=limits), trace=self.lines.append)
        self.answers: dict[tuple[str, ...], list[Receipt] | OrdercastError] = {}
        for host in self.world.hosts.values():
            host.on_answer = self._answered
            host.start()
        self.wait(1.0)

    def __getitem__(self, site: SiteId) -> Host:
        return self.world.hosts[site]

    def _answered(self, output: io.Resolve) -> None:
        self.answers[output.token] = output.error if output.error is not None else output.receipts

    def wait(self, seconds: float = 2.0) -> None:
        """Let time pass."""
        self.world.run(self.world.now + seconds)

    def post(self, site: SiteId, *groups: GroupId, ack: AckLevel = "safe", size: int = 10) -> tuple[str, ...]:
        """Send one message; returns what `answers` knows it by."""
        host, ledger = self[site], self.world.ledger
        name = ledger.attempt(host.me, groups, ack, size, host.node.peers.epoch)
        ledger.waits((name,), ack)
        ledger.took([name])
        host.feed(io.Post(groups, [ledger.attempts[name].body], ack, (name,)))
        return (name,)

    def reader(self, site: SiteId, name: str = "slow", **asked: Any) -> Reader:
        """Open a reader that reads nothing by itself."""
        host = self[site]
        reader = host.node.reader(name, asked.get("groups"), asked.get("after"), asked.get("policy", "block"))
        host.carry(host.node.turn())
        return reader

    def status(self, site: SiteId) -> Status:
        """Return what a site says of itself."""
        return status(self[site].node)

    def log(self, site: SiteId) -> list[str]:
        """Return the names of what a site has delivered."""
        return [entry.name for (of, _), log in sorted(self.world.ledger.logs.items()) if of == site for entry in log]
