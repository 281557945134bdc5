"""Planted bugs in `epochs/`: each is a wrong line or two, and each must be caught by the campaign within 200 seeds."""

import importlib
import os

import pytest

from tests.epochs.test_council import conflict, ignored, minority, not_again, not_durable
from tests.support.planted import planted

C = M = O = P = R = S = T = "epochs"  # noqa: E741  # any file of the folder: the text says which

# name, module, replacements
MUTANTS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("a promise is not durable", P, [("            if news:\n                self.durable()\n            self.say(sender, answer)", "            self.say(sender, answer)")]),
    ("a stale ballot is accepted", C, [("        if decision.ballot < self.promised:\n            return Outvoted(decision.number, self.promised), False\n        news = self.accepted", "        news = self.accepted")]),
    ("a stale ballot closes", C, [("        if ballot < self.promised:\n            return None\n", "")]),
    ("what was accepted is not told", C, [("return Promise(asked.number, asked.ballot, self.accepted), news", "return Promise(asked.number, asked.ballot, None), news")]),
    ("a majority is one less", M, [("return len(self.council) // 2 + 1", "return len(self.council) // 2")]),
    ("an accepted decision is ignored", M, [("        if accepted:\n            highest", "        if False:\n            highest")]),
    ("a class goes on after it was closed", P, [("            self.closed.add(class_id)\n            self.machines.pop(class_id, None)", "            pass")]),
    ("a closing is not durable", P, [("        if news or stop or again:\n            self.durable()", "        pass")]),
    ("one report is enough", M, [("any(other not in state.reports for other in state.asked)", "all(other not in state.reports for other in state.asked)")]),
    ("a cut without the last message", R, [("    lines.sort(key=lambda line: (line.order, line.stamp))", "    lines.sort(key=lambda line: (line.order, line.stamp))\n    del lines[-1:]")]),
    ("a cut in the order of names", R, [("    lines.sort(key=lambda line: (line.order, line.stamp))", "    lines.sort(key=lambda line: (line.order, line.id))")]),
    ("a cut without the ends of streams", R, [("last[stream] = max(last.get(stream, 0), message.number)", "last[stream] = 0")]),
    ("nothing is installed", O, [("                    if todo:\n                        site.installing.todo[class_id] = todo", "                    pass")]),
    ("a class opens before everything is installed", O, [("        if not installing.delivered:\n            self._fetch()\n            return\n", "")]),
    ("nothing is rolled back", O, [("                self._roll_back(rolled_back(track, cut))\n", "")]),
    ("only the unknown is rolled back", R, [("            return track.entries[index:]", "            return [entry]")]),
    ("what follows a rollback is not delivered again", O, [("                    site.hand(entry)\n\n    def _joins", "                    pass\n\n    def _joins")]),
    ("a source sends nothing again", O, [("                site.sending.send_again(number)", "                pass")]),
    ("a source sends too much again", O, [("inside = number <= last.get(own.groups, 0)", "inside = number < last.get(own.groups, 0)")]),
    ("a source sends again out of order", S, [("        self.unsent.append(number)\n        self.unsent.sort()", "        self.unsent.insert(0, number)")]),
    ("messages to other destinations do not wait", S, [("                    if destination != groups:", "                    if False:")]),
    ("a class takes numbers out of order", P, [("                waits.add(class_id)\n                continue", "                continue")]),
    ("a joiner starts early", O, [("        if installing.states:\n            self._ask_states()\n        elif self.numbers:", "        if self.numbers:")]),
    ("a joiner gets no state", O, [("        if joining.providers:\n            site.installing.states[group] = joining", "        if False:\n            site.installing.states[group] = joining")]),
    ("a state counts wrong", O, [("        count = self.at_open[number][group]", "        count = self.at_open[number][group] + 1")]),
    ("a lost disk is not noticed", P, [("        self.admitted = setup.number > 0", "        self.admitted = True")]),
    ("an empty disk votes", P, [("        elif self.me in self.setup.council and self.admitted:", "        elif self.me in self.setup.council:")]),
    ("stable as soon as one has it", T, [("return min([self.counts.get(groups, 0), *(heard.get(other, 0) for other in others)])", "return self.counts.get(groups, 0)")]),
    ("safe is handed over at once", T, [("                if not agreed and not self.is_stable(entry):\n                    break", "                pass")]),
    ("done before everybody has installed", M, [("        if set(decision.installers) - left <= set(state.installed.get(number, ())):", "        if state.installed.get(number):")]),
    ("done is not heard", O, [("                self._finish(class_id)\n", "                pass\n")]),
    ("new messages are handed over before old ones", O, [("        behind = max(numbers) if self._holds_back() else 0", "        behind = 0")]),
    ("a class that was closed in vain stays closed", P, [("        found = set(self.closed)\n", "        found = set[ClassId]()\n")]),
    ("wishes are not repeated", P, [("            if other != self.me:\n                self.say(other, wish)", "            pass")]),
    ("a decision is not told to who is behind", P, [("                    self.say(sender, m.Decided(self.decisions[number]))", "                    pass")]),
    ("a state is restored among old deliveries", O, [("here and not self._not_handed():", "here:")]),
    ("an event inside another is not appended", P, [("                for effect in self.step_again(Received(sender, message, class_id)):\n                    self.out.append(effect)", "                self.feed(class_id, Received(sender, message, class_id))")]),
    ("the last who has a group's state leaves", C, [("            if _orphans(setup, after, suspected, without):\n                continue\n", "")]),
    ("what an empty disk had is not reported on again", M, [("site.before(planned.closed, self._lives())", "site.before(planned.closed)")]),
    ("superseded is done", P, [("                if at > number:\n                    self._tell_at(sender)\n                else:\n                    self.opening.done(which)", "                self.opening.done(which)")]),
    ("nobody waits for a state that may come", M, [("        if self._state_may_come(planned.closed, pending):", "        if False:")]),
    ("an empty disk that is waited for is waited for", M, [("            news |= sender in self.state.asked and sender not in self.state.reports\n", "")]),
    ("who goes on alone gets messages one by one", R, [("j.replay and j.site not in alone", "j.replay")]),
]  # fmt: skip
CHOSEN = MUTANTS if "ORDERCAST_CAMPAIGN" in os.environ else MUTANTS[::9]


def caught(mutant: tuple[str, str, list[tuple[str, str]]], seeds: int = 200) -> int | None:
    """Return the first seed that shows a planted bug; None when none does."""
    _, module, replacements = mutant
    with planted(module, *replacements):
        judge = importlib.import_module("ordercast.sim.changing").judge
        campaign = importlib.import_module("tests.support.epoch_campaign")
        case, all_seeds = campaign.case, list[int]((*range(seeds), *campaign.FOUND))
        if any(wrong() for wrong in (conflict, not_durable, ignored, minority, not_again)):
            return 0
        for seed in all_seeds:
            try:
                found, _ = judge(case(seed))
            except Exception:  # a bug that stops the world is a bug that is seen
                return seed
            if found:
                return seed
    return None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", CHOSEN, ids=lambda mutant: mutant[0])
def test_planted_bugs_are_caught(mutant: tuple[str, str, list[tuple[str, str]]]) -> None:
    """A sample; all of them in `make sim`."""
    assert caught(mutant) is not None, "survived 200 seeds"


def test_every_planted_bug_is_one() -> None:
    """Each replaces a text that occurs once in the code of today."""
    for _, module, replacements in MUTANTS:
        with planted(module, *replacements):
            pass

    assert len(MUTANTS) >= 30
