"""Configurations made in code are checked as files are; a changed one says what differs; a failed start lets go."""

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from ordercast.errors import HistoryError, InputError, OrdercastError
from ordercast.live.config import Cluster, Security, read_cluster
from ordercast.live.site import Site
from ordercast.names import Planner
from tests.live.test_site import GROUPS, Running, cluster, ports, run

GOOD: dict[str, Any] = {"sites": {"p": "localhost:1", "q": "localhost:2"}, "groups": {"g": ["p", "q"]}}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"groups": {"g": ["p", "x"]}}, "group g: 'x' is not in [sites]"),
        ({"groups": {}}, "needs [sites] and [groups], each with at least one entry"),
        ({"groups": {"g": []}}, "group g: empty"),
        ({"groups": {"g": ["p", "p"]}}, "a site is named twice"),
        ({"groups": {"g": "pq"}}, "groups"),
        ({"protocol": "paxos"}, "not 'paxos'"),
        ({"planner": "guess"}, "guess"),
        ({"limits": {"window": 1}}, "limits"),
        ({"sites": {"p": "localhost:1", "q": "localhost:1"}}, "localhost:1 is given twice"),
        (
            {"sites": {"p": "localhost:1", "q": "localhost:1"}, "clients": {"p": "localhost:1"}},
            "localhost:1 is given twice",
        ),
        ({"clients": {"p": "localhost:1"}}, "localhost:1 is given twice"),
        ({"sites": {"p": "localhost:1", "q": "localhost:0"}}, "'localhost:0' is not host:port"),
        ({"sites": {"p": "localhost:1", "q": "localhost:65536"}}, "'localhost:65536' is not host:port"),
        ({"sites": {"p": "localhost:1", "q": "localhost:²"}}, "is not host:port"),
        ({"metrics": {"z": "localhost:9"}}, "[metrics] 'z' is not in [sites]"),
        ({"security": Security(tokens={"t": "ann"}, send={"bob": ["g"]})}, "send: no token is for client 'bob'"),
        ({"security": Security(tokens={"t": "ann"}, receive={"ann": ["h"]})}, "receive: there is no group 'h'"),
        ({"security": Security(send={"ann": ["g"]})}, "send: no token is for client 'ann'"),
    ],
)
def test_a_cluster_in_code_is_checked_as_a_file_is(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError) as error:
        Cluster(**{**GOOD, **changed})
    assert why in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["", "a+b", "a/b", ".a", " a", "a ", "a\n", "a\x00b", "a\x1bb"])
def test_names_that_are_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no name for a group"):
        Cluster(sites={"p": "localhost:1"}, groups={name: ["p"]})
    with pytest.raises(InputError, match="is no name for a site"):
        Cluster(sites={name: "localhost:1"}, groups={"g": [name]})
    path = tmp_path / "cluster.toml"
    quoted = '"' + "".join(f"\\u{ord(sign):04x}" for sign in name) + '"'
    path.write_text(f'[sites]\np = "localhost:1"\n[groups]\n{quoted} = ["p"]\n')
    with pytest.raises(InputError, match=r"cluster.toml: .*is no name for a group"):
        read_cluster(path)


def test_what_is_given_in_code_becomes_what_a_file_gives() -> None:
    made = Cluster(sites={"p": "localhost:1"}, groups={"g": ("p",)}, planner="central")  # type: ignore[dict-item, arg-type]

    assert made.planner is Planner.CENTRAL and made.groups == {"g": ["p"]}
    assert Cluster(**GOOD, security=Security(send={"anyone": ["g"]})).security.send == {"anyone": ["g"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"groups": {**GROUPS, "d": ["p", "q"]}}, "group d is new"),
        ({"groups": {"a": ["p", "q"], "b": ["q", "r"]}}, "group c is gone"),
        ({"groups": {**GROUPS, "a": ["p", "q", "r"]}}, "group a has other members: r came"),
        ({"protocol": "two-phase"}, "protocol was propagation, now it is two-phase"),
        ({"level": "total"}, "level was acyclic, now it is total"),
        ({"planner": "central"}, "planner was by size, now it is central"),
    ],
)
def test_a_changed_configuration_says_what_differs_and_how_to_go_on(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    async def work() -> None:
        config = cluster(tmp_path, durable=True, export="run")
        async with Running(config) as sites:
            await sites["p"].multicast("a", b"x", ack="safe")
        members = (tmp_path / "run" / "membership" / "part-0.parquet").read_bytes()
        other = cluster(tmp_path, **{"groups": GROUPS, "durable": True, "export": "run", **changed})
        with pytest.raises(HistoryError) as error:
            await Site(other, "p").start()
        assert why in str(error.value) and "nothing was changed" in str(error.value)
        assert f"move {config.data_folder} aside" in str(error.value)
        assert (tmp_path / "run" / "membership" / "part-0.parquet").read_bytes() == members
        async with Running(config) as sites:  # what is there was not touched, and nothing is locked
            assert (await anext(aiter(sites["q"].inbox(after=-1)))).body == b"x"
            await sites["p"].multicast("a", b"y", ack="safe")
        config.data_folder.rename(tmp_path / "aside")
        async with Running(other) as sites:
            await sites["p"].multicast("a", b"new")

    run(work())


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["sites", "clients", "metrics"])
def test_after_a_failed_start_the_next_try_works(tmp_path: Path, broken: str) -> None:
    """A port is taken: the site says so and lets go of everything, so the next try in this process works."""

    async def work() -> None:
        config = cluster(tmp_path, durable=True, metrics=dict(zip("pqr", ports(3), strict=True)))
        threads = threading.active_count()
        host, port = config.address("p", broken)  # type: ignore[arg-type]
        with socket.create_server((host, port)):
            for _ in range(2):
                with pytest.raises(OrdercastError, match=r"cannot (listen|serve)"):
                    await Site(config, "p").start()
        await asyncio.sleep(0)
        assert threading.active_count() == threads
        async with Running(config) as sites:
            await sites["p"].multicast("a", b"x", ack="safe")

    run(work())


@pytest.mark.parametrize("union", [["a"], ["a", "a"], ["a", "nothing"], []])
def test_unions_name_groups_that_are_there(union: list[str]) -> None:
    with pytest.raises(InputError, match="must name at least two groups that are in"):
        Cluster(sites={"p": "127.0.0.1:7001"}, groups={"a": ["p"], "b": ["p"]}, unions=[union])
