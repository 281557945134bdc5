"""The whole error tree: an error says whose fault it is, because that decides what happens next."""


class OrdercastError(Exception):
    """Anything we raise on purpose."""


class LocalError(OrdercastError):
    """The caller asked for what is forbidden; state is unchanged."""


class InputError(LocalError, ValueError):
    """A file or an argument cannot be used; one line that names what and where. The command line exits with 2."""


class PlanError(OrdercastError, ValueError):
    """No valid plan for this membership; names the rule that failed."""


class PeerError(OrdercastError):
    """A peer sent what the protocol forbids; the runtime drops that link."""


class HistoryError(OrdercastError):
    """Stored records do not check out, or cannot be written; names the file and the record."""
