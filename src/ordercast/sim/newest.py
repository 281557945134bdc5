"""The newest configuration of a run, and what a change of it means for the judge."""

import msgspec

from ordercast.epochs.messages import Decision
from ordercast.epochs.requests import Change, RemoveSite
from ordercast.epochs.setup import Setup
from ordercast.names import GroupId, SiteId
from ordercast.verify.changes import Changes


class Newest:
    """Follows the decisions of a run."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.classes = dict(setup.classes)  # all there have been
        self.deleted: set[GroupId] = set()  # perhaps created again since
        self.gone: set[SiteId] = set()  # whom an operator has removed, perhaps to add it again at once

    def asked(self, change: Change) -> None:
        """An operator asks for a change."""
        if isinstance(change, RemoveSite):
            self.gone.add(change.site)

    def decided(self, site: SiteId, decision: Decision, judge: Changes) -> None:
        """A site is in a configuration now."""
        bare = msgspec.structs.replace(decision, ballot=(0, ""))
        if judge.decided(site, decision.number, bare):
            self._first(decision, judge)

    def _first(self, decision: Decision, judge: Changes) -> None:
        """A configuration is in force: groups are gone with it, or nobody is left in them who has what they had."""
        old, self.setup = self.setup, decision.setup
        setup = self.setup
        self.classes |= setup.classes
        for group in sorted(old.groups.keys() - setup.groups.keys()):
            judge.deleted(group)
            self.deleted.add(group)
        for site in sorted(old.sites.keys() - setup.sites.keys()):
            judge.sent_away(site, {group for group in old.groups if set(old.members(group)) == {site}})
        for site in sorted(setup.sites.keys() - old.sites.keys()):
            judge.added(site)
        if self.gone:  # who was a member, waited for a state, and goes on without: an operator removed who had it
            judge.removed({j.group for j in decision.joining if not j.providers and j.group in old.groups})
        for site in judge.without_a_disk:
            judge.nobody_in(site, {g for g in setup.groups if set(setup.members(g)) <= {site}})
