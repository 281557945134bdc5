"""What a host of a world does with its disk: one thing after the other, each in its time; a crash may come between."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ordercast.core.events import Multicast
from ordercast.errors import HistoryError
from ordercast.history import records
from ordercast.history.memory import NoHistory
from ordercast.history.store import Identity
from ordercast.node import inputs as io
from ordercast.node.reading import read_past
from ordercast.node.settings import Settings
from ordercast.sim.disk import Disk, SimHistory
from ordercast.wire import batch

if TYPE_CHECKING:
    from ordercast.sim.nodes import Host

WRITE_S = 0.002  # what a commit takes, about


class Storage:
    """Carries out `Write`, `Keep` and `ReadPast` of one host, and tells the ledger what is durable."""

    def __init__(self, host: "Host") -> None:
        self.host, self.disk = host, Disk()
        self._history: SimHistory | None = None  # where the site is durable
        self._free_at = 0.0

    def open(self, settings: Settings, incarnation: int) -> SimHistory | NoHistory:
        """Open the history for a new life; raises HistoryError when it is not that of this site."""
        self._free_at, site = 0.0, self.host.site
        if not settings.durable:
            return NoHistory(Identity(settings.cluster, site, incarnation))
        self._history = self.disk.open(settings.cluster, site, incarnation)
        return self._history

    @property
    def history(self) -> SimHistory:
        """The history of this life."""
        assert self._history is not None, "a site that is not durable writes"
        return self._history

    def power_off(self) -> None:
        """End a life: a write under way is done or not; entries of the index since the checkpoint may be gone."""
        world = self.host.world
        self.disk.crash(commit=not self.disk.full and world.chance.random() < 0.5)
        self._history = None
        kept = self.disk.kept
        if kept is None:
            return
        durable = kept.checkpoint.delivered if kept.checkpoint is not None else 0
        while kept.entries and kept.entries[-1].position >= durable and world.chance.random() < 0.5:
            kept.next_position = kept.entries.pop().position
        world.ledger.stored(self.host.site, names_in(kept.records.values()))

    def _later(self, do: Callable[..., None], asked: Any, begin: Callable[..., None] | None = None) -> None:
        host, chance = self.host, self.host.world.chance
        begins = max(host.world.now, self._free_at)
        self._free_at = begins + (WRITE_S * chance.expovariate(1) if chance.random() < 0.9 else 20 * WRITE_S)
        if begin is not None:
            host.later(begins - host.world.now, self._try, begin, asked)
        host.later(self._free_at - host.world.now, self._try, do, asked)

    def _try(self, do: Callable[..., None], asked: Any) -> None:
        try:
            do(asked)
        except HistoryError as error:
            self._tell(io.DiskFailed(error))

    def _tell(self, given: io.Input) -> None:
        """Tell the node of what the disk did; often a moment later, so that a crash may come between."""
        self.host.later(self.host.world.chance.choice([0.0, 0.0, 0.001]), self.host.feed, given)

    def write(self, output: io.Write) -> None:
        """Write records and index entries in one commit."""
        self._later(self._written, output, lambda asked: self.history.write(asked.records, asked.positions))

    def _written(self, output: io.Write) -> None:
        self.history.commit()
        self.host.world.ledger.stored(self.host.site, names_in(output.records))
        self._tell(io.Committed(0.001))

    def keep(self, output: io.Keep) -> None:
        """Write a checkpoint."""
        self._later(self._kept, output)

    def _kept(self, output: io.Keep) -> None:
        self.history.keep(output.checkpoint, output.from_delivered, output.needed)
        self._tell(io.Kept())

    def read(self, output: io.ReadPast) -> None:
        """Read a slice of what was delivered."""
        self._later(self._past, output)

    def _past(self, output: io.ReadPast) -> None:
        self._tell(read_past(self.history, output))


def names_in(stored: Iterable[bytes]) -> set[str]:
    """Return the names of all messages in some records."""
    found = set[str]()
    for record in stored:
        said = records.decode(record)
        envelope = said if isinstance(said, Multicast) else records.envelope_of(said)
        if envelope is not None and envelope.body:
            found.update(body.partition(b" ")[0].decode() for body in batch.unpack(envelope.body))
    return found
