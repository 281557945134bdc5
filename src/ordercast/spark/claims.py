"""What the experiments on the dynamics say, in words, beside what GS88 and MGT claim. Times are in latencies."""

from collections.abc import Callable
from math import sqrt
from typing import Any

from ordercast.sim.dynamics import CRASH, CUT

Rows = list[dict[str, Any]]
LONG = 10.0
"""A stop of more latencies than this is long: a message takes one or two."""
SELDOM = 0.1
"""Of ten faults, fewer than one."""
SOME = 0.5
"""Of all groups: a change that concerns more restructures the tree."""


def claims(rows: Rows) -> list[str]:
    """Judge by the summary's rows; an experiment that was not run is not spoken of."""
    found: list[str] = []
    for experiment, judge in JUDGES.items():
        own = [row for row in rows if row["experiment"] == experiment]
        if own:
            found += judge(own)
    return found


def _of(rows: Rows, **where: object) -> Rows:
    """Return the rows of some points, in the order of what varies."""
    own = [row for row in rows if all(row[name] == value for name, value in where.items())]
    return sorted(own, key=lambda row: (row["sites"], row["churn"], row["suspect_after"], row["rate"]))


def _protocols(rows: Rows) -> list[str]:
    return sorted({row["protocol"] for row in rows})


def _told(values: dict[str, float], form: str = "{:.1f}") -> str:
    return ", ".join(f"{name} {form.format(value)}" for name, value in sorted(values.items(), key=lambda one: one[1]))


def _pooled(rows: Rows, figure: str) -> tuple[float, int]:
    """Return the sum of a figure over all trials, and how many trials that are."""
    return sum(row["runs"] * row[figure] for row in rows), sum(row["runs"] for row in rows)


def _change(rows: Rows) -> list[str]:
    worst = {name: max(row["stall"] for row in _of(rows, protocol=name)) for name in _protocols(rows)}
    word = "Holds" if worst.get("propagation", 0.0) <= LONG else "Fails"
    found = [
        f"{word}: “changes to the multicast groups are done quickly and easily” (GS88 §6), without long stops "
        f"(§5.1): the longest mean stop of a group at any number of sites is, in latencies: {_told(worst)}."
    ]
    for level in ("total", "acyclic"):
        own = _of(rows, protocol="propagation", level=level)
        if own:
            first, last = own[0], own[-1]
            groups = last["touched"] / last["share"] if last["share"] else 0.0
            found.append(
                f"{'Holds' if last['share'] > SOME else 'Fails'}, level {level}: “each change of a group membership "
                "would result in the restructuring of the propagation tree” (MGT §6, of GS88): with "
                f"{last['sites']} sites it concerns {last['touched']:.1f} of {groups:.0f} groups and takes "
                f"{last['messages']:,.0f} messages, "
                f"{last['messages'] / first['messages']:.1f} times those with {first['sites']} sites."
            )
    return found


def _churn(rows: Rows) -> list[str]:
    found = []
    slower, stands = {}, {}
    for protocol in _protocols(rows):
        own = _of(rows, protocol=protocol)
        quiet, most = own[0], own[-1]
        if quiet["churn"] == 0 and most["churn"] > 0 and quiet["delay"]:
            slower[protocol] = most["delay"] / quiet["delay"]
            stands[protocol] = 100 * most["standing"]
    if slower:
        most = max(row["churn"] for row in rows)
        found.append(
            f"Ours: with {most:.0f} joins and leaves asked for per 100 latencies among 20 sites a message takes so "
            f"many times as long as with none: {_told(slower)}; members stand still for so many % of the time: "
            f"{_told(stands)}."
        )
    return found


def _recovery(rows: Rows) -> list[str]:
    found = []
    after = {}
    for protocol in _protocols(rows):
        own = [row for row in _of(rows, protocol=protocol, sites=20, policy="available") if row["recovery"] is not None]
        if own:
            after[protocol] = sum(row["recovery"] - row["suspect_after"] for row in own) / len(own)
    if after:
        found.append(
            "Ours: the groups of a dead site are without it suspect_after and so many latencies after the kill: "
            f"{_told(after)}."
        )
    available, trials = _pooled([row for row in rows if row["policy"] == "available"], "waiting")
    if trials:
        found.append(
            f"{'Holds' if available == 0 else 'Fails'}: “message delivery can continue after the recovery, even though "
            f"the site is still down” (GS88 §5.2.1): with policy available "
            f"{'no message' if available == 0 else 'some messages'} of the others waited for ever in {trials} trials."
        )
    waits = {row["protocol"]: 100 * row["waiting"] for row in rows if row["policy"] == "atomic"}
    if waits:
        word = "Holds" if waits.get("propagation", 0.0) < 50 else "Fails"
        found.append(
            f"{word}: with atomic delivery “blocking is not necessary in all cases” (GS88 §5.2.2): of the messages to "
            f"the groups of a dead site so many % wait for its repair: {_told(waits, '{:.0f}')}."
        )
    return found


def _rollback(rows: Rows) -> list[str]:
    agreed = [row for row in rows if row["delivery"] == "agreed"]
    found = _how_often(agreed, CRASH, "“non-atomicity occurs infrequently” (GS88 §5.2)")
    found += _how_often(agreed, CUT, "the same of a site that is cut off, which GS88 leaves out,")
    elsewhere, trials = _pooled(rows, "elsewhere")
    found.append(
        f"{'Holds' if elsewhere == 0 else 'Fails'}: “only a failed site may have delivered messages in the wrong "
        f"order” (GS88 §5.2): other sites rolled back {elsewhere:.0f} deliveries in {trials} trials."
    )
    held = {how: _pooled([row for row in rows if row["delivery"] == how], "rolled") for how in ("copied", "safe")}
    told = [f"{deliveries:.0f} in {many} trials with {how}" for how, (deliveries, many) in held.items() if many]
    if told:
        word = "Holds" if all(deliveries == 0 for deliveries, _ in held.values()) else "Fails"
        found.append(f"{word}: delivery copied or safe does not roll back when one site fails: {' and '.join(told)}.")
    return found


def _how_often(rows: Rows, fault: str, claim: str) -> list[str]:
    own = [row for row in rows if row["fault"] == fault]
    happened, trials = _pooled(own, "happened")
    if not trials:
        return []
    share = happened / trials
    doubt = 1.96 * sqrt(share * (1 - share) / trials)
    word = "Holds" if share + doubt <= SELDOM else "Fails" if share - doubt > SELDOM else "Mostly holds"
    rates = {
        rate: _pooled([row for row in own if row["rate"] == rate], "happened") for rate in {r["rate"] for r in own}
    }
    told = ", ".join(f"{100 * many / of:.0f} % at {rate:g}" for rate, (many, of) in sorted(rates.items()))
    deliveries, _ = _pooled(own, "rolled")
    length = f"; one undoes {deliveries / happened:.1f} deliveries on average" if happened else ""
    return [
        f"{word}: {claim} with delivery agreed: {happened:.0f} of {trials} faults ({fault}) made the site roll back, "
        f"by the messages to a group per latency {told}{length}."
    ]


JUDGES: dict[str, Callable[[Rows], list[str]]] = {
    "change": _change, "churn": _churn, "recovery": _recovery, "rollback": _rollback,
}  # fmt: skip
