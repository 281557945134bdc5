"""The whole error tree: an error says whose fault it is, because that decides what happens next.

A caller can tell apart: refused (`LocalError`), unreachable (`UnreachableError`), lost (`LostError`), damaged
(`HistoryError`), a peer's fault (`PeerError`) and our own (`BugError`).
"""

SAID_AT_MOST = 200


def bounded(text: str, at_most: int = SAID_AT_MOST) -> str:
    """Return the beginning of what somebody else said: no log line and no answer grows with it."""
    return text if len(text) <= at_most else f"{text[:at_most]}... ({len(text)} characters)"


class OrdercastError(Exception):
    """Anything we raise on purpose."""


class LocalError(OrdercastError):
    """Refused: the caller asked for what is forbidden; nothing was changed."""


class InputError(LocalError, ValueError):
    """A file or an argument cannot be used; one line that names what and where. The command line exits with 2."""


class PlanError(OrdercastError, ValueError):
    """No valid plan for this membership; names the rule that failed."""


class PeerError(OrdercastError):
    """A peer sent what the protocol forbids; the link to it is dropped."""


class LostHistoryError(PeerError):
    """A message of a site that has lost its history, whoever passes it on: it is not taken, and the site is named."""


class UnreachableError(OrdercastError):
    """Nobody answers at that address; nothing was sent."""


class LostError(OrdercastError):
    """The connection, or the site behind it, ended: what was not acknowledged may or may not have been sent."""


class DroppedError(LostError):
    """A reader was too far behind and had asked to be dropped then; it may read on after a position."""

    def __init__(self, reason: str, after: int) -> None:
        super().__init__(f"{reason}; read on after position {after}")
        self.reason, self.after = reason, after


class HistoryError(OrdercastError):
    """Stored records do not check out, or cannot be written; names the file and the record."""


class BugError(OrdercastError):
    """A fault of this program; the site that met it has stopped."""
