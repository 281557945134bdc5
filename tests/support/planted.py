"""Machines with other lines in them: planted bugs, and the papers' rules as printed."""

import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ordercast.protocols import registry as deployment

SWAPS = [f"swap.{name}" for name in ("multicast", "arrow", "combining", "hybrid", "counting")]
PROTOCOLS = ["propagation", "two_phase", "timestamp", *SWAPS, "sequencing", "registry"]
NAMES = ["ordercast.core.edges", "ordercast.core.contexts", *(f"ordercast.protocols.{name}" for name in PROTOCOLS)]


PLANNERS = [f"ordercast.planning.{name}" for name in ("forest", "propagation_graph", "metagroup_tree", "central")]


@contextmanager
def planted(module_name: str, *replacements: tuple[str, str]) -> Iterator[None]:
    """Run with lines of one module replaced; everything that is built from it is built anew."""
    names = PLANNERS if module_name.startswith("planning") else NAMES
    kept = {name: importlib.import_module(name) for name in names}
    machines = dict(deployment.MACHINES)
    try:
        for name in names:
            path = _origin(name)
            code = Path(path).read_text("utf-8")
            if name == f"ordercast.{module_name}":
                for text, replacement in replacements:
                    assert code.count(text) == 1, f"{text!r} occurs {code.count(text)} times in {module_name}"
                    code = code.replace(text, replacement)
            module = types.ModuleType(name)
            module.__file__, module.__package__ = path, name.rpartition(".")[0]
            sys.modules[name] = module
            exec(compile(code, path, "exec"), module.__dict__)
        deployment.MACHINES.update(sys.modules[deployment.__name__].MACHINES)
        yield
    finally:
        sys.modules.update(kept)
        deployment.MACHINES.update(machines)


def _origin(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return spec.origin
