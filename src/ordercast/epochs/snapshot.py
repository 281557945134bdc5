"""A participant's whole state as a value: for checkpoints, and for the explorer."""

from typing import TYPE_CHECKING

import msgspec

from ordercast.core.configuration import Destination
from ordercast.core.snapshots import decode_snapshot, encode_snapshot
from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.epochs.behind import BehindState
from ordercast.epochs.council import Council
from ordercast.epochs.founding import FoundingState
from ordercast.epochs.obstacles import ManagerState
from ordercast.epochs.recovery import Installing
from ordercast.epochs.requests import Change
from ordercast.epochs.sending import Sending
from ordercast.epochs.setup import ClassSetup, Setup
from ordercast.epochs.track import Entry, Recent, Track
from ordercast.errors import HistoryError
from ordercast.names import ClassId, GroupId, SiteId
from ordercast.protocols.registry import MACHINES

if TYPE_CHECKING:
    from ordercast.epochs.participant import Participant


class ParticipantState(msgspec.Struct, array_like=True):
    """Everything there is to a participant, but for messages that came too early: their senders send them again."""

    me: SiteId
    incarnation: int
    sent: int
    now: float
    setup: Setup
    decisions: dict[int, m.Decision]
    machines: list[tuple[ClassId, bytes]]
    awake: list[ClassId]
    closed: list[ClassId]
    reported: list[ClassId]
    retired: dict[ClassId, list[Entry]]
    earlier: dict[ClassId, ClassSetup]
    draining: list[ClassId]
    halted: list[ClassId]
    ends: dict[ClassId, list[tuple[m.Id, Destination]]]
    askers: dict[ClassId, list[tuple[SiteId, Destination]]]
    tracks: dict[ClassId, Track]
    handed: list[Entry]
    counts: dict[GroupId, int]
    history: dict[GroupId, list[tuple[int, Entry]]]
    council: Council
    sending: Sending
    installing: Installing
    opening: list[int]
    joined_in: dict[GroupId, int]
    undone: list[int]
    views: list[tuple[int, list[e.ViewChanged]]]
    at_open: dict[int, dict[GroupId, int]]
    offers: list[int]
    asked: dict[int, tuple[GroupId, ...]]
    states: dict[int, dict[GroupId, bytes]]
    follows: dict[int, int]
    asked_for: dict[int, Change]
    requests: int
    manager: ManagerState
    detected: list[SiteId]
    admitted: bool
    since: int
    fresh: dict[SiteId, int]
    wants: dict[SiteId, dict[GroupId, tuple[int, int]]]
    founding: FoundingState
    behind: BehindState


def take_snapshot(site: "Participant") -> ParticipantState:
    """Return the whole state. It shares values with the participant: encode it before the next step."""
    opening = site.opening
    return ParticipantState(
        me=site.me,
        incarnation=site.source.incarnation,
        sent=site.source.sent,
        now=site.now,
        setup=site.setup,
        decisions=site.decisions,
        machines=[(class_id, encode_snapshot(machine.snapshot())) for class_id, machine in site.machines.items()],
        awake=sorted(site.awake),
        closed=sorted(site.closed),
        reported=sorted(site.reported),
        retired=dict(sorted(site.retired.items())),
        earlier=dict(sorted(site.earlier.items())),
        draining=sorted(site.draining),
        halted=sorted(site.halted),
        ends=dict(sorted(site.ends.items())),
        askers=dict(sorted(site.askers.items())),
        tracks=dict(sorted(site.tracks.items())),
        handed=site.handed,
        counts=dict(sorted(site.counts.items())),
        history={group: list(kept) for group, kept in sorted(site.history.items())},
        council=site.council,
        sending=site.sending,
        installing=site.installing,
        opening=opening.numbers,
        joined_in=opening.joined_in,
        undone=sorted(site.undone),
        views=opening.views,
        at_open=opening.at_open,
        offers=opening.offers,
        asked=opening.asked,
        states=opening.states,
        follows=opening.follows,
        asked_for=site.asked_for,
        requests=site.requests,
        manager=site.manager.state,
        detected=sorted(site.detected),
        admitted=site.admitted,
        since=site.since,
        fresh=site.fresh,
        wants=opening.wants,
        founding=site.founding.state,
        behind=site.behind.state,
    )


def restore_snapshot(site: "Participant", state: ParticipantState) -> None:
    """Take over a state of the same site; raises HistoryError when it is of another."""
    if state.me != site.me:
        raise HistoryError(f"a snapshot of {state.me}, not of {site.me}")
    opening = site.opening
    site.source.incarnation, site.source.sent, site.now = state.incarnation, state.sent, state.now
    site.setup, site.decisions = state.setup, state.decisions
    site.awake, site.closed, site.reported = set(state.awake), set(state.closed), set(state.reported)
    site.earlier, site.tracks, site.handed, site.retired = state.earlier, state.tracks, state.handed, state.retired
    site.counts, site.council, site.sending, site.installing = (
        state.counts, state.council, state.sending, state.installing,
    )  # fmt: skip
    site.draining, site.halted = set(state.draining), set(state.halted)
    site.ends, site.askers = state.ends, state.askers
    site.history = {}
    for group, kept in state.history.items():
        site.history[group] = Recent(kept)
    opening.numbers, opening.joined_in, opening.views = state.opening, state.joined_in, state.views
    opening.at_open, opening.states, opening.wants = state.at_open, state.states, state.wants
    opening.offers, opening.asked, opening.follows = state.offers, state.asked, state.follows
    site.undone, site.asked_for, site.requests = set(state.undone), state.asked_for, state.requests
    site.manager.state, site.detected = state.manager, set(state.detected)
    site.admitted, site.since, site.fresh = state.admitted, state.since, state.fresh
    site.founding.state, site.behind.state = state.founding, state.behind
    site.machines = {}
    for class_id, data in state.machines:
        of_class = site.class_setup(class_id)
        machine = of_class.machine(site.source)
        machine.restore(decode_snapshot(data, msgspec.msgpack.Decoder(MACHINES[of_class.protocol].state)))
        site.machines[class_id] = machine
    _share(site)


def _share(site: "Participant") -> None:
    """Let one message be one object again, in the track, in the history and among what was handed over."""
    known = {(x.class_id, x.id): x for track in site.tracks.values() for x in track.entries}
    site.handed = [known.get((x.class_id, x.id), x) for x in site.handed]
    for group, kept in site.history.items():
        shared = [(index, known.get((x.class_id, x.id), x)) for index, x in kept]
        site.history[group] = Recent(shared)


_decoder = msgspec.msgpack.Decoder(ParticipantState)


def encode(site: "Participant") -> bytes:
    """Return a participant's state as bytes; equal states give equal bytes."""
    return encode_snapshot(take_snapshot(site))


def decode(data: bytes) -> ParticipantState:
    """Return a participant's state; raises HistoryError when the bytes are none."""
    return decode_snapshot(data, _decoder)
