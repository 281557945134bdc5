"""The audit of a run that goes on: what live sites export is judged as it comes, and never read twice.

`fixed` judges runs whose groups are fixed, `moving` those in which groups change. What waits is said, with the reason
and since when.
"""

import os
import time
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ordercast.audit.fixed import Fixed
from ordercast.audit.moving import Moving
from ordercast.audit.tails import Held
from ordercast.errors import InputError
from ordercast.runs.reader import has_table, read_members
from ordercast.verify.findings import Finding
from ordercast.verify.stays import LIFE

FORMAT = 3
LEVELS = {"fifo": ("fifo",), "total": ("fifo", "total"), "acyclic": ("fifo", "total", "acyclic")}
PROPERTIES = ("creation", "duplicate", "completeness", "body", "fifo", "epochs", "stamps", "total", "acyclic")
UNDER_WAY_AT_MOST = 5_000_000
SEARCH_S = 2.0  # between two searches for what is judged many rows at a time
SAVE_S = 10.0
LATE_S = 10.0  # what waits for longer is told


class Judge(Protocol):
    """Reads a run directory and judges it."""

    deliveries: int
    newest: float
    """When the last delivery that is judged was delivered."""

    @property
    def broken(self) -> dict[str, Finding]:
        """The first violation of each property."""
        ...

    @property
    def under_way(self) -> int:
        """How many messages are not at all their members yet, or behind such a one."""
        ...

    @property
    def stands(self) -> bool:
        """Whether it can judge on."""
        ...

    def look(self, search_s: float) -> None:
        """Read what is new and judge it; search for what is judged many rows at a time every so many seconds."""
        ...

    def held(self) -> list[Held]:
        """Return what cannot be judged yet."""
        ...

    def notes(self) -> list[str]:
        """Say what was not judged."""
        ...

    def saved(self) -> Any:
        """Return what is known, as plain values."""
        ...

    def load(self, saved: Any) -> None:
        """Go on from what another one has saved."""
        ...


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """What a follower knows, for its next life."""

    format: int
    level: str
    moving: bool
    judge: msgspec.Raw


class Follower:
    """Follows a run directory. Call `look` again and again; it returns the violations that it has found since."""

    search_s = SEARCH_S

    def __init__(self, folder: Path, level: str = "acyclic", state: Path | None = None) -> None:
        """`state`: a file to go on from, and to keep what is known in; raises InputError when it is of another run."""
        if level not in LEVELS:
            raise InputError(
                f"--follow judges the levels {', '.join(LEVELS)}, not {level}: causal order is judged whole"
            )
        self.folder, self.level, self._file = folder, level, state
        self.broken: dict[str, Finding] = {}
        self._saved = time.monotonic()
        self._judge: Judge | None = None

    @property
    def deliveries(self) -> int:
        """How many deliveries were read."""
        return self._judge.deliveries if self._judge is not None else 0

    @property
    def newest(self) -> float:
        """When the last delivery that is judged was delivered."""
        return self._judge.newest if self._judge is not None else 0.0

    @property
    def under_way(self) -> int:
        """How many messages are not at all their members yet, or behind such a one."""
        return self._judge.under_way if self._judge is not None else 0

    @property
    def stands(self) -> bool:
        """Whether it can judge on; if not, `notes` says why."""
        return self._judge is None or self._judge.stands

    def held(self) -> list[Held]:
        """Return what cannot be judged yet, why, and for how long."""
        found = self._judge.held() if self._judge is not None else []
        return sorted(found, key=lambda held: -held.seconds)

    def notes(self) -> list[str]:
        """Say what was not judged."""
        return self._judge.notes() if self._judge is not None else []

    def look(self) -> list[Finding]:
        """Read what is new and judge it; returns the first violation of each property that is new."""
        known = set(self.broken)
        if self._judge is None:
            self._judge = self._begin()
        if self._judge is None:
            return []
        self._judge.look(self.search_s)
        if self._judge.under_way > UNDER_WAY_AT_MOST:
            raise InputError(f"{self.folder}: {self._judge.under_way:,} messages are not everywhere: a member is gone")
        for name, finding in self._judge.broken.items():
            self.broken.setdefault(name, finding)
        if self._file is not None and time.monotonic() - self._saved > SAVE_S:
            self.save()
        return [self.broken[name] for name in PROPERTIES if name in self.broken and name not in known]

    def _begin(self) -> Judge | None:
        """Choose the judge. Sites whose groups change write lives/ first, and their incarnation into names of files."""
        members = read_members(str(self.folder), texts=True, may_be_empty=True)
        promises = frozenset(LEVELS[self.level])
        judge: Judge
        if has_table(str(self.folder), "lives"):
            judge = Moving(self.folder, promises)
        elif any((self.folder / "membership").glob(f"*{LIFE}*.parquet")):
            return None  # lives/ is on its way
        elif members:
            judge = Fixed(self.folder, promises, members)
        else:
            return None
        self._load(judge)
        return judge

    # Keeping.

    def save(self) -> None:
        """Keep what is known: whoever begins from it judges on."""
        if self._file is None or self._judge is None:
            return
        judge = msgspec.Raw(msgspec.msgpack.encode(self._judge.saved()))
        saved = Saved(FORMAT, self.level, isinstance(self._judge, Moving), judge)
        new = self._file.with_name(f".{self._file.name}.{os.getpid()}.tmp")
        try:
            new.write_bytes(msgspec.msgpack.encode(saved))
            new.replace(self._file)
        except OSError as error:
            raise InputError(f"{self._file}: {error.strerror}") from None
        self._saved = time.monotonic()

    def _load(self, judge: Judge) -> None:
        if self._file is None or not self._file.exists():
            return
        try:
            saved = msgspec.msgpack.decode(self._file.read_bytes(), type=Saved)
            if (saved.format, saved.level) != (FORMAT, self.level):
                told = f"is of level {saved.level}, format {saved.format}; begin anew without it"
                raise InputError(f"{self._file}: {told}")
            if saved.moving != isinstance(judge, Moving):
                raise InputError(f"{self._file}: is of another run; begin anew without it")
            judge.load(saved.judge)
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(f"{self._file}: not what --follow keeps: {error}") from None
        self.broken.update(judge.broken)
