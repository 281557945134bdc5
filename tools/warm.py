"""Compile the hot kernels once, so that no command has to wait for it."""

import tempfile
from pathlib import Path

import numba  # noqa: F401 - from here on all loops are compiled
from tests.support.logs import FAULTS, make_logs

from ordercast import Budget, ClassRule, Membership, Request, make_plan
from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import audit

members = Membership.of({"a": ["p", "q"], "b": ["q", "r"], "c": ["r", "p"]})
for rule in ClassRule:
    make_plan(members, Request(level="total", classes=rule, budget=Budget(steps=100)))  # type: ignore[arg-type]
with tempfile.TemporaryDirectory() as folder:
    logs = make_logs(30_000)
    FAULTS["cycle_of_three"](logs)
    logs.write(Path(folder))
    audit(LocalSource(folder), "acyclic")
