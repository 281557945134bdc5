"""Machines and nodes with other lines in them: planted bugs, and the papers' rules as printed."""

import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from ordercast.protocols import registry as deployment

SWAPS = [f"swap.{name}" for name in ("multicast", "arrow", "combining", "hybrid", "counting")]
PASSING = [f"propagation.{name}" for name in ("messages", "own", "pasts", "bodies", "waiting", "rules", "machine")]
SEQUENCING = [
    f"sequencing.{name}"
    for name in ("messages", "sequencer", "sender", "member", "rules", "counts", "parts", "machine")
]
PROTOCOLS = [*PASSING, "two_phase", "timestamp", *SWAPS, *SEQUENCING, "registry"]
CORE = [f"ordercast.core.{name}" for name in ("stamps", "resume", "streams", "settling", "edges", "contexts")]
NAMES = [*CORE, *(f"ordercast.protocols.{name}" for name in PROTOCOLS)]


PARTS = [
    "inputs",
    "pace",
    "sessions",
    "readers",
    "deliveries",
    "detector",
    "intake",
    "outbox",
    "peers",
    "links",
    "pipeline",
    "changes",
    "recovery",
    "reading",
]
WORLD = [
    *(
        f"ordercast.sim.{name}"
        for name in (
            "storage",
            "lines",
            "nodes",
            "clients",
            "faults",
            "following",
            "follower",
            "moving",
            "changing_nodes",
        )
    ),
    "tests.support.changing_campaign",
]
NODES = [*(f"ordercast.node.{name}" for name in (*PARTS, "status", "node", "changing")), *WORLD]
"""A node's parts in the order of their imports, and the world that drives it."""
EPOCHS = [
    f"ordercast.epochs.{name}"
    for name in (
        "setup",
        "requests",
        "difference",
        "change",
        "messages",
        "events",
        "behind",
        "council",
        "founding",
        "repeats",
        "sending",
        "track",
        "copies",
        "recovery",
        "obstacles",
        "wishes",
        "manager",
        "stability",
        "states",
        "closed",
        "opening",
        "rules",
        "snapshot",
        "handing",
        "classes",
        "participant",
    )
]
CHANGING = [
    *EPOCHS,
    *(f"ordercast.sim.{name}" for name in ("newest", "mishaps", "changing", "explore_changes")),
    *(f"tests.support.{name}" for name in ("epoch_campaign", "change_cases")),
]
"""Participants in the order of their imports, and the world that drives them."""
PLANNERS = [f"ordercast.planning.{name}" for name in ("forest", "propagation_graph", "metagroup_tree", "central")]


@contextmanager
def planted(module_name: str, *replacements: tuple[str, str]) -> Iterator[None]:
    """Run with lines of one module or package replaced; everything that is built from it is built anew."""
    codes, _ = _replaced(module_name, replacements)
    kept = {name: importlib.import_module(name) for name in codes}
    machines = dict(deployment.MACHINES)
    try:
        for name, code in codes.items():
            path = _origin(name)
            module = types.ModuleType(name)
            module.__file__, module.__package__ = path, name.rpartition(".")[0]
            _put(name, module)
            exec(compile(code, path, "exec"), module.__dict__)
        deployment.MACHINES.update(sys.modules[deployment.__name__].MACHINES)
        yield
    finally:
        for name, module in kept.items():
            _put(name, module)
        deployment.MACHINES.update(machines)


def check_planted(module_name: str, *replacements: tuple[str, str]) -> None:
    """Each text to be replaced occurs once in the code of today, and what comes of it is code."""
    codes, changed = _replaced(module_name, replacements)
    for name in changed:
        compile(codes[name], name, "exec")


def _replaced(module_name: str, replacements: tuple[tuple[str, str], ...]) -> tuple[dict[str, str], set[str]]:
    """Return the code of all modules that are built anew, in the order of their imports, and which of it is changed."""
    kinds = {"planning": PLANNERS, "node": NODES, "epochs": CHANGING, "founding": [*EPOCHS, *NODES]}
    names = kinds.get(module_name.partition(".")[0], NAMES)
    module_name = module_name.replace("founding", "epochs.founding")  # seen by worlds of nodes only
    codes, changed = {name: _code(name) for name in names}, set[str]()
    for text, replacement in replacements:
        own = [name for name in names if f"{name}.".startswith(f"ordercast.{module_name}.") and text in codes[name]]
        count = sum(codes[name].count(text) for name in own)
        assert count == 1, f"{text!r} occurs {count} times in {module_name}"
        codes[own[0]] = codes[own[0]].replace(text, replacement)
        changed.add(own[0])
    return codes, changed


@cache
def _code(name: str) -> str:
    return Path(_origin(name)).read_text("utf-8")


def _put(name: str, module: types.ModuleType) -> None:
    """Let imports find a module, those through its package too."""
    package, _, last = name.rpartition(".")
    sys.modules[name] = module
    setattr(sys.modules[package], last, module)


def _origin(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return spec.origin
