"""Compile the hot kernels once, so that no command has to wait for it."""

from ordercast import Budget, ClassRule, Membership, Request, make_plan

members = Membership.of({"a": ["p", "q"], "b": ["q", "r"], "c": ["r", "p"]})
for rule in ClassRule:
    make_plan(members, Request(level="total", classes=rule, budget=Budget(steps=100)))  # type: ignore[arg-type]
