"""Everything a machine asks for passes here, in order: what must be durable is written, what follows is done after it.

All that came meanwhile is written in one commit (group commit). The pipeline never waits: it asks for a `Write` and
goes on when it is told that the write is on disk. So nothing is sent, delivered or acknowledged that is not durable.
A site that is declared not durable does everything at once.
"""

from collections.abc import Callable
from typing import Any

from ordercast.core.effects import Append
from ordercast.core.events import Event
from ordercast.history.store import Position
from ordercast.node.inputs import Output, Write

Work = Any  # an effect of a machine, or an output of the node


class Pipeline:
    """One per node."""

    def __init__(
        self,
        *,
        durable: bool,
        record: Callable[[Event], bytes],
        do: Callable[[Work], None],
        tell: Callable[[Output], None],
        freeze: Callable[[], Any],
    ) -> None:
        """`do` does what may be done now; `freeze` is called when all records of a write are stepped."""
        self.durable, self._record, self._do, self._tell, self._freeze = durable, record, do, tell, freeze
        self.written = 0  # records on disk
        self.commits = 0
        self.positions: list[Position] = []  # delivered, and not yet in the index
        self.bytes = 0  # of records since the last checkpoint
        self._records: list[bytes] = []
        self._behind: list[Work] = []  # to be done when the records are on disk
        self._writing: tuple[int, list[Work], list[Position], Any] | None = None

    @property
    def writing(self) -> bool:
        """Whether a write is under way."""
        return self._writing is not None

    @property
    def open(self) -> bool:
        """Whether anything waits for the disk."""
        return self.writing or bool(self._records or self._behind)

    @property
    def next_record(self) -> int:
        """The number that the next record gets."""
        under_way = self._writing[0] if self._writing is not None else 0
        return self.written + under_way + len(self._records) + 1

    def put(self, effects: list[Work]) -> None:
        """Take effects, in order."""
        if not self.durable:
            for effect in effects:
                if type(effect) is not Append:
                    self._do(effect)
            return
        for effect in effects:
            if type(effect) is Append:
                self.log(self._record(effect.event))
            else:
                self._behind.append(effect)

    def log(self, record: bytes) -> None:
        """Take a record that is not of a machine."""
        if self.durable:
            self._records.append(record)
            self.bytes += len(record)

    def replayed(self, record: bytes) -> None:
        """Count a record of an earlier life; who is restarted often must not step through ever more."""
        self.written += 1
        self.bytes += len(record)

    def begin(self) -> None:
        """Write what came, or do it when there is nothing to write; nothing while a write is under way."""
        while self._writing is None and (self._records or self._behind):
            records, self._records = self._records, []
            behind, self._behind = self._behind, []
            if records:
                self._writing = (len(records), behind, [], None)
                frozen = self._freeze()
                positions, self.positions = self.positions, []
                self._writing = (len(records), behind, positions, frozen)
                self._tell(Write(records, positions))
            else:
                for work in behind:
                    self._do(work)

    def committed(self) -> tuple[list[Position], Any]:
        """The write is on disk: do what follows from it; returns the index entries, and what `freeze` had returned."""
        assert self._writing is not None, "a commit that nobody asked for"
        many, behind, positions, frozen = self._writing
        self._writing = None
        self.written += many
        self.commits += many > 0
        for work in behind:
            self._do(work)
        return positions, frozen

    def write_positions(self) -> bool:
        """Write index entries that no commit followed, with what they speak of; returns whether there were any."""
        assert self._writing is None
        positions, self.positions = self.positions, []
        if not positions:
            return False
        records, self._records = self._records, []
        behind, self._behind = self._behind, []
        self._writing = (len(records), behind, positions, None)
        self._tell(Write(records, positions))
        return True

    def clear(self) -> list[Work]:
        """Forget all that was to be done, and return it: the node has failed."""
        behind = [*(self._writing[1] if self._writing is not None else ()), *self._behind]
        self._records, self._behind, self.positions, self._writing = [], [], [], None
        return behind
