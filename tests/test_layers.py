"""The import arrows of the tree: a folder imports itself and what stands beside its name, and nothing else of ours."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "ordercast"
ROOT = {"types", "errors", "membership", "topology"}
MAY_IMPORT = {
    "types": set[str](),
    "errors": set[str](),
    "membership": {"types", "errors"},
    "topology": {"types", "errors"},
    "film": {"types"},
    "planning": ROOT | {"planning"},
    "verify": {"types", "topology", "verify"},
    "core": {"types", "errors", "topology", "core"},
    "protocols": {"types", "errors", "topology", "core", "protocols"},
    "sim": ROOT | {"film", "core", "protocols", "planning", "plans", "verify", "sim"},
    "wire": {"types", "errors", "core", "protocols", "wire"},
    "history": {"types", "errors", "core", "wire", "history"},
    "runtime": ROOT | {"verify", "core", "protocols", "planning", "plans", "runs", "wire", "history", "runtime"},
    "plans": ROOT | {"planning", "verify"},
    "runs": {"types", "errors", "core"},
    "pictures": {"types", "errors", "topology", "film", "pictures"},
    "pages": {"errors"},
    "audit": ROOT | {"planning", "verify", "pages", "audit"},
    "demo": ROOT | {"film", "audit", "pages", "pictures", "runs", "runtime", "demo"},
    "jobs": ROOT | {"audit", "planning", "verify", "sim", "protocols", "core", "pages", "pictures", "jobs"},
    "testing": ROOT
    | {"audit", "runs"}
    | {"runtime", "history", "wire", "core", "protocols", "sim", "planning", "verify", "testing"},
    "cli": ROOT
    | {"__init__", "film", "core", "protocols", "sim", "planning", "verify", "plans", "runs", "pictures", "cli"}
    | {"runtime", "history", "wire", "audit", "jobs", "pages", "testing", "demo"},
    "__init__": ROOT | {"planning", "plans", "verify", "runtime"},
    "sync": {"types", "runtime"},
    "__main__": {"cli"},
}
IMPURE = {"asyncio", "socket", "random", "threading", "subprocess", "datetime", "tempfile", "os"}
PURE = {"types", "film", "errors", "topology", "planning", "verify", "core", "protocols", "wire", "sim"}


def imported(path: Path) -> set[str]:
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names if node.module == "ordercast")
    return names


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_import_follows_the_arrows() -> None:
    broken = []
    for path in sorted(SOURCE.rglob("*.py")):
        for name in imported(path):
            parts = name.split(".")
            if parts[0] != "ordercast":
                continue
            target = parts[1] if len(parts) > 1 else "__init__"
            known = target if (SOURCE / target).exists() or (SOURCE / f"{target}.py").exists() else "__init__"
            if name != "ordercast" and known not in MAY_IMPORT[layer(path)]:
                broken.append(f"{path.relative_to(SOURCE)} imports {name}")

    assert broken == []


def test_planning_and_judging_are_pure() -> None:
    """Nothing that plans, runs or judges knows sockets, files or threads; only `best` reads a clock."""
    broken = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        if layer(path) in PURE
        for name in imported(path)
        if (name.split(".")[0] in IMPURE and not (name == "random" and layer(path) == "sim"))
        or (name == "time" and path.name != "best.py")
    ]

    assert broken == []


def test_only_pictures_know_matplotlib() -> None:
    users = {layer(path) for path in SOURCE.rglob("*.py") if any(n.startswith("matplotlib") for n in imported(path))}

    assert users == {"pictures"}


def test_only_jobs_know_pyspark() -> None:
    users = {layer(path) for path in SOURCE.rglob("*.py") if any(n.startswith("pyspark") for n in imported(path))}

    assert users == {"jobs"}
