"""Who may say what about configurations and stability (errata 62). It is asked before anything changes."""

from typing import TYPE_CHECKING, Any

from ordercast.core.configuration import Destination
from ordercast.epochs import messages as m
from ordercast.epochs.recovery import key_of
from ordercast.epochs.track import id_of
from ordercast.errors import PeerError
from ordercast.names import ClassId, SiteId

if TYPE_CHECKING:
    from ordercast.epochs.participant import Participant

NUMBER_AT_MOST = 2**53


def check(site: "Participant", sender: SiteId, message: Any, class_id: ClassId) -> None:
    """Raise PeerError for what no honest site says; what is of another configuration is not judged here."""
    wrong = _of_class(site, sender, message, class_id) if class_id != m.CONTROL else _control(site, sender, message)
    if wrong:
        raise PeerError(f"{sender} sent {site.me} {type(message).__name__}: {wrong}")


def _control(site: "Participant", sender: SiteId, message: Any) -> str:
    council = site.setup.council
    match message:
        case m.Prepare(number, ballot) | m.Close(number, ballot) | m.Released(number, ballot):
            if number == site.setup.number + 1 and (sender not in council or ballot[1] != sender):
                return "only a member of the council leads a ballot, and its own"
            if not 0 < ballot[0] <= NUMBER_AT_MOST:
                return f"no ballot has number {ballot[0]}"
        case m.Accept(decision):
            if decision.number == site.setup.number + 1 and (sender not in council or decision.ballot[1] != sender):
                return "only a member of the council asks for votes, in its own ballot"
        case m.Body(_, message_id, envelope):
            if key_of(id_of(envelope)) != key_of(message_id):
                return f"it is not {message_id}"
        case m.State(number, group, count):
            joining = site.installing.states.get(group)
            mine = joining is not None and site.opening.joined_in.get(group) == number
            if mine and joining is not None and sender not in joining.providers:
                return f"it was not asked for the state of {group}"
            if not 0 <= count <= NUMBER_AT_MOST:
                return f"no group has {count} messages"
    return ""


def _of_class(site: "Participant", sender: SiteId, message: Any, class_id: ClassId) -> str:
    if class_id not in site.setup.classes and class_id not in site.earlier:
        return ""
    match message:
        case m.Stable(counts):
            told: list[Destination] = [groups for groups, _ in counts]
        case m.Whereabouts(groups, _, _, last):
            told = [groups]
            if last is not None:
                return _end(site, sender, class_id, groups, last)
        case _:
            return ""
    of_class = site.class_setup(class_id)
    for groups in told:
        known = bool(groups) and all(group in of_class.members for group in groups)
        if not known or of_class.destinations(groups)[0] != sender:
            return f"the first member of {'+'.join(groups)} is another"
    return ""


def _end(site: "Participant", sender: SiteId, class_id: ClassId, groups: Destination, last: int) -> str:
    """Who tells the end of a class has been a member of the destination."""
    own = sender == site.me  # nobody else knows
    if not own and last < 0:
        return f"no message has number {last}"
    if (
        not own
        and groups in site.sending.unknown.get(class_id, ())
        and sender not in site.class_setup(class_id).destinations(groups)
    ):
        return f"it is no member of {'+'.join(groups)}"
    return ""
