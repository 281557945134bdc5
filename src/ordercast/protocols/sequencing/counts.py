"""What a site and a peer can compare when a link between them comes up (`core.resume`)."""

from ordercast.core.resume import Counts
from ordercast.names import SiteId
from ordercast.protocols.sequencing.member import Member
from ordercast.protocols.sequencing.rules import Rules
from ordercast.protocols.sequencing.sender import Sender
from ordercast.protocols.sequencing.sequencer import Sequencer


def streams_between(
    peer: SiteId, rules: Rules, sender: Sender, member: Member, sequencing: dict[int, Sequencer]
) -> dict[int, Counts]:
    """Return what is counted between this site and a peer: requests of each part, then numbers of each group.

    A number of a group is sent by its sequencer, received when it is delivered, acknowledged when it is stable.
    """
    found: dict[int, Counts] = {}
    for part, site in enumerate(rules.sequencers):
        if site == peer:
            found[part] = Counts(sent=sender.counted.get(part, 0), acked=sender.answered(part))
        if site == rules.me:
            found[part] = Counts(received=sequencing[part].taken_of(peer))
    members = rules.groups.members
    for stream, group in enumerate(sorted(members), start=len(rules.sequencers)):
        site = rules.sequencer_of(group)
        if site == rules.me and peer in members[group]:
            sequencer = sequencing[rules.groups.part_of(group)]
            found[stream] = Counts(sent=sequencer.numbers[group], acked=sequencer.stable[group][peer])
        elif site == peer and group in member.delivered:
            found[stream] = Counts(received=member.delivered[group])
    return {stream: counts for stream, counts in found.items() if counts.sent or counts.received}
