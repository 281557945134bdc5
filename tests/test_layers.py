"""The import arrows of the tree: a folder imports itself and what stands beside its name, and nothing else of ours."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "ordercast"
ROOT = {"names", "errors", "compiled", "membership", "planning"}
PROTOCOLS = ROOT | {"core", "protocols"}
LIVE = PROTOCOLS | {"verify", "epochs", "wire", "history", "runs", "client", "node", "live"}
MAY_IMPORT = {
    "names": set[str](),
    "errors": set[str](),
    "compiled": set[str](),
    "membership": {"names", "errors", "membership"},
    "planning": ROOT | {"verify"},
    "verify": {"names", "errors", "planning", "verify"},
    "core": {"names", "errors", "planning", "core"},
    "protocols": PROTOCOLS,
    "epochs": PROTOCOLS | {"epochs"},
    "node": PROTOCOLS | {"wire", "history", "client", "epochs", "node"},
    "sim": PROTOCOLS | {"verify", "wire", "history", "client", "node", "epochs", "sim"},
    "wire": {"names", "errors", "core", "protocols", "epochs", "wire"},
    "history": {"names", "errors", "core", "wire", "epochs", "history"},
    "client": {"names", "errors", "wire", "client"},
    "swap": {"names", "errors", "client"},
    "live": LIVE,
    "runs": {"names", "errors", "membership", "runs"},
    "imports": {"names", "errors", "membership", "runs", "imports"},
    "show": {"names", "errors", "planning", "sim", "verify", "show"},
    "audit": ROOT | {"verify", "runs", "show", "audit"},
    "spark": PROTOCOLS | {"runs", "audit", "verify", "sim", "show", "wire", "client", "spark"},
    "bench": LIVE | {"bench"},
    "demo": LIVE | {"sim", "audit", "show", "demo"},
    "testing": LIVE | {"epochs", "sim", "testing"},
    "cli": LIVE | {"__init__", "sim", "audit", "show", "spark", "bench", "demo", "imports", "cli"},
    "__init__": LIVE,
    "__main__": {"cli"},
}
IMPURE = {"asyncio", "socket", "random", "threading", "subprocess", "datetime", "tempfile", "os"}
PURE = {"names", "errors", "planning", "verify", "core", "protocols", "epochs", "wire", "node", "sim"}


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
    """Nothing that plans, runs or judges knows sockets, files or threads.

    But for two: `best` may search for some seconds, and `planning/cache.py` keeps a plan where other sites find it.
    """
    broken = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        if layer(path) in PURE
        for name in imported(path)
        if (name.split(".")[0] in IMPURE and not (name == "random" and layer(path) == "sim"))
        or (name == "time" and path.name != "best.py")
        if path != SOURCE / "planning" / "cache.py"
    ]

    assert broken == []


def test_only_show_knows_matplotlib() -> None:
    users = {layer(path) for path in SOURCE.rglob("*.py") if any(n.startswith("matplotlib") for n in imported(path))}

    assert users == {"show"}


def test_only_spark_knows_pyspark() -> None:
    users = {layer(path) for path in SOURCE.rglob("*.py") if any(n.startswith("pyspark") for n in imported(path))}

    assert users == {"spark"}


def test_nothing_is_pickled() -> None:
    """Issue 12, security: what is read from a disk or a peer is data and is checked; it is never code."""
    banned = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    users = [path for path in SOURCE.rglob("*.py") if banned & {name.split(".")[0] for name in imported(path)}]

    assert users == []


def test_files_classes_and_functions_stay_small() -> None:
    """No file above 450 lines, no class above 250, nine of ten functions at most 30 (issue 12)."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")}
    long_files = [path.name for path in trees if len(path.read_text("utf-8").splitlines()) > 450]
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    long_classes = [node.name for node in nodes if isinstance(node, ast.ClassDef) and lines(node) > 250]
    functions = sorted(lines(node) for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))

    assert (long_files, long_classes) == ([], [])
    assert functions[len(functions) * 9 // 10] <= 30


def lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1
