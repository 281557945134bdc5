"""What stands in `deploy/` speaks of what there is: metrics, options of commands, a cluster that is accepted."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from ordercast.live.config import Cluster, read_cluster
from ordercast.live.metrics import _Figures
from ordercast.live.site import Site
from tests.support.live import begun, cluster, run

DEPLOY = Path(__file__).parent.parent / "deploy"
NAME = re.compile(r"\bordercast_[a-z_]+")


def metrics(folder: Path, config: Cluster) -> set[str]:
    """Return the names that a site exports, as Prometheus knows them."""
    found: set[str] = set()

    async def work() -> None:
        async with Site(config, "p") as site:
            await begun({"p": site})
            for family in _Figures(site).collect():
                found.add(family.name + ("_total" if family.type == "counter" else ""))

    run(work())
    return found


def test_alerts_and_dashboard_use_names_that_exist(tmp_path: Path) -> None:
    known = metrics(tmp_path, cluster(tmp_path, {"a": ["p"]}, durable=True, policy="available"))
    alerts = [line for line in (DEPLOY / "alerts.yaml").read_text().splitlines() if "expr:" in line]
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    used = [name for line in alerts for name in NAME.findall(line)]
    used += [name for panel in panels for target in panel["targets"] for name in NAME.findall(target["expr"])]

    assert len(used) > 15
    assert set(used) - known == set()


def test_the_cluster_of_the_compose_file_is_one() -> None:
    config = read_cluster(DEPLOY / "cluster.toml")
    services = re.findall(r"command: \[site, ([\w-]+),", (DEPLOY / "compose.yaml").read_text())

    assert sorted(config.sites) == sorted(services)
    assert config.changes and tomllib.loads((DEPLOY / "cluster.toml").read_text())["data"] == config.data


@pytest.mark.parametrize("name", ["ordercast@.service", "compose.yaml"])
def test_the_options_exist(name: str) -> None:
    from ordercast.cli.operate import site

    lines = [line for line in (DEPLOY / name).read_text().splitlines() if "ExecStart" in line or "command:" in line]
    known = {f"--{option.replace('_', '-')}" for option in site.__kwdefaults__ or ()}
    used = {option for line in lines for option in re.findall(r"(--[a-z-]+)", line)}

    assert used and used <= known
