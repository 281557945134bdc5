"""`ordercast audit DIR --follow`: says within seconds what live sites have broken."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ordercast.audit.following import LATE_S, PROPERTIES, Follower
from ordercast.errors import InputError
from ordercast.show.terminal import Screen, shown
from ordercast.verify.findings import Finding

LOOK_S = 0.5


def follow(
    run: str, level: str, *, state: Path | None, metrics: int | None, seconds: float | None, as_json: bool
) -> int:
    """Follow a run until Ctrl-C, or for so many seconds; 1 when something is broken, or could not be judged."""
    if not Path(run).is_dir():
        raise InputError(f"{run}: no such folder; --follow follows a run directory on this machine")
    follower, told = Follower(Path(run), level, state), Told(as_json)
    if metrics is not None:
        serve(follower, metrics)
    for finding in follower.broken.values():
        told.finding(finding)
    until = time.monotonic() + seconds if seconds is not None else None
    try:
        while until is None or time.monotonic() < until:
            for finding in follower.look():
                told.finding(finding)
            told.progress(follower)
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        pass
    follower.save()
    return told.end(follower)


class Told:
    """What is printed: each violation once, and a line now and then."""

    every = 5.0

    def __init__(self, as_json: bool) -> None:
        self._json, self._screen, self._last = as_json, Screen(), 0.0

    def finding(self, finding: Finding) -> None:
        """Print a violation."""
        if self._json:
            self._line({"broken": finding.property, "says": finding.says, "example": finding.as_json()})
        else:
            self._screen.print(f"{_now()} broken: {finding.property}: {shown(finding.says)}", style="bold red")

    def progress(self, follower: Follower) -> None:
        """Print how far the audit is, from time to time."""
        if time.monotonic() - self._last < self.every:
            return
        self._last, held = time.monotonic(), follower.held()
        late = [one for one in held if one.seconds > LATE_S]
        if self._json:
            self._line(facts(follower) | {"held": [one._asdict() for one in held]})
            return
        lag = f", {lag_of(follower):.1f} s behind" if follower.newest else ""
        told = f"{_now()} {follower.deliveries:,} deliveries{lag}, {follower.under_way:,} messages under way"
        self._screen.print(f"{told}: {self.word(follower)}")
        for one in late[:3]:
            self._screen.print(f"  {shown(one.reason)}, for {one.seconds:.0f} s", style="yellow")

    @staticmethod
    def word(follower: Follower) -> str:
        """Say how the run stands; what nobody has looked at does not hold."""
        if follower.broken:
            return f"{', '.join(sorted(follower.broken))} broken"
        if not follower.stands:
            return "judged no more"
        return "holds" if follower.deliveries else "nothing is there to be judged"

    def end(self, follower: Follower) -> int:
        """Print the verdict; what waits is not judged, and the verdict is not that it holds."""
        held = [one for one in follower.held() if one.seconds > LATE_S]
        notes = follower.notes()
        good = bool(follower.deliveries) and follower.stands and not follower.broken and not held
        if self._json:
            self._line({"ok": good} | facts(follower) | {"notes": notes})
            return 0 if good else 1
        word = "does not hold" if follower.broken else "holds so far" if good else "was not judged completely"
        self._screen.print(f"{follower.deliveries:,} deliveries, level {follower.level} {word}")
        for one in held[:3]:
            self._screen.print(f"not judged: {shown(one.reason)}", style="yellow")
        for note in notes:
            self._screen.print(shown(note), style="yellow")
        return 0 if good else 1

    @staticmethod
    def _line(values: dict[str, Any]) -> None:
        print(msgspec.json.encode(values).decode(), flush=True)


def _now() -> str:
    return time.strftime("%H:%M:%S")


def lag_of(follower: Follower) -> float:
    """Return how long ago the last delivery was delivered that is judged."""
    return max(0.0, time.time() - follower.newest)


def _is_broken(follower: Follower, name: str) -> float:
    return float(name in follower.broken)


def facts(follower: Follower) -> dict[str, Any]:
    """Return what metrics and programs are told."""
    return {
        "level": follower.level,
        "deliveries": follower.deliveries,
        "behind_s": round(lag_of(follower), 3) if follower.newest else None,
        "under_way": follower.under_way,
        "broken": sorted(follower.broken),
    }


def serve(follower: Follower, port: int) -> None:
    """Serve metrics for Prometheus on this machine."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, start_http_server
    except ImportError:
        raise InputError("--metrics needs prometheus-client: pip install 'ordercast[live]'") from None
    registry = CollectorRegistry()
    told = {
        "ordercast_audit_deliveries": ("Deliveries that are judged", lambda: follower.deliveries),
        "ordercast_audit_behind_seconds": ("Age of the last delivery that is judged", lambda: lag_of(follower)),
        "ordercast_audit_under_way": ("Messages that are not at all their members", lambda: follower.under_way),
        "ordercast_audit_held_seconds": (
            "How long something has waited that cannot be judged",
            lambda: max((one.seconds for one in follower.held()), default=0.0),
        ),
    }
    for name, (help_text, read) in told.items():
        Gauge(name, help_text, registry=registry).set_function(read)
    broken = Gauge("ordercast_audit_broken", "Whether a property is broken", ["property"], registry=registry)
    for name in PROPERTIES:
        broken.labels(name).set_function(partial(_is_broken, follower, name))
    try:
        start_http_server(port, "127.0.0.1", registry)
    except OSError as error:
        raise InputError(f"--metrics {port}: {error.strerror}") from None
