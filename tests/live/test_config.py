"""Configurations made in code are checked as files are; a changed one says what differs; a failed start lets go."""

import asyncio
import os
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization

from ordercast.errors import HistoryError, InputError, LocalError, OrdercastError
from ordercast.live.config import Cluster, Security, Swap, deploy, read_cluster
from ordercast.live.site import Site
from ordercast.live.tls import context, make_certs
from ordercast.live.tokens import read_tokens
from ordercast.names import Planner, Shape
from ordercast.node.settings import Limits
from tests.support.live import GROUPS, Running, cluster, ports, run

NEAR_X = Swap(tree=Shape.LATENCY, latencies=[("p", "x", 1.0)])
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
        ({"sequencers": ["p"]}, "sequencers: protocol propagation has none"),
        ({"protocol": "arrow", "direct_bytes": 1}, "direct_bytes: with protocol arrow bodies go the way of the order"),
        ({"protocol": "sequencer", "direct_bytes": -1}, "direct_bytes"),
        ({"migrate": True}, "migrate: protocol propagation has no sequencers"),
        ({"groups_alone": True}, "it takes protocol = sequencer and causal = true"),
        ({"protocol": "sequencer", "groups_alone": True}, "it takes protocol = sequencer and causal = true"),
        (
            {"protocol": "sequencer", "causal": True, "groups_alone": True, "policy": "atomic"},
            "groups_alone is for groups that do not change, not for policy atomic",
        ),
        ({"protocol": "sequencer", "migrate": True}, "migrate is for groups that change"),
        ({"protocol": "sequencer", "sequencers": ["x"]}, "sequencers: 'x' is not in [sites]"),
        ({"swap": Swap(tree=Shape.PATH)}, "[swap] tree: protocol propagation takes none"),
        ({"protocol": "arrow", "swap": Swap(upper=2)}, "[swap] upper: protocol arrow takes none"),
        ({"protocol": "hybrid", "swap": Swap(upper=-1)}, "[swap] upper is at least 0, not -1"),
        ({"protocol": "arrow", "swap": Swap(tree=Shape.LATENCY)}, "[swap] tree latency takes latencies"),
        ({"protocol": "arrow", "swap": Swap(latencies=[("p", "q", 1.0)])}, "[swap] tree latency takes latencies"),
        ({"protocol": "arrow", "swap": NEAR_X}, "[swap] latencies: 'x' is not in [sites]"),
        (
            {"protocol": "arrow", "policy": "atomic", "swap": Swap(by_source=True)},
            "[swap] by_source is for groups that",
        ),
        ({"delivery": "copied"}, "delivery is for groups that change"),
        ({"copies": 1}, "copies"),
        ({"policy": "available", "copies": 3}, "copies is for delivery copied"),
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


NO_NAMES = [
    *"+/.-_ é\\",
    "",
    "a+b",
    "a/b",
    ".a",
    "-a",
    "_a",
    "a.",
    " a",
    "a ",
    "a b",
    "a\n",
    "a\x00b",
    "a\x1bb",
    "a\\b",
]
NO_NAMES += ["a:b", "a*b", "a'b", "a,b", "$a", "a=b", "..", "pаypal", "ſ", "a" * 64, "127.0.0.1"]


@pytest.mark.parametrize("name", NO_NAMES)
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


@pytest.mark.parametrize("name", ["p", "main-1", "a.b", "a_b", "0", "UPPER", "a" * 63, "x--y"])
def test_names_that_are_some(name: str) -> None:
    assert Cluster(sites={name: "localhost:1"}, groups={name: [name]}).groups == {name: [name]}


@pytest.mark.parametrize("name", ["ca", "CA", "Ca"])
def test_no_site_is_called_like_the_certificate_of_the_ca(name: str) -> None:
    """Issue 12, security: `ordercast certs` would write its certificate over that of the CA."""
    with pytest.raises(InputError, match="a site may not be called"):
        Cluster(sites={name: "localhost:1"}, groups={"g": [name]})


def test_sites_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(InputError, match="sites main and MAIN differ in case only"):
        Cluster(sites={"main": "localhost:1", "MAIN": "localhost:2"}, groups={"g": ["main"]})


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "10.1.2.3", "[::]", "example.org", "[2001:db8::1]", "*", "127.0.0.1.evil.org"]
)
@pytest.mark.parametrize("table", ["sites", "clients", "metrics"])
def test_addresses_that_others_can_reach_need_tls_or_a_word(host: str, table: str) -> None:
    """Issue 12, security: without TLS any process could greet as any site, read and forge."""
    sites = {"p": "127.0.0.1:1", "q": "[::1]:2"}
    given: dict[str, Any] = {
        "sites": sites,
        "groups": GOOD["groups"],
        table: {**(sites if table == "sites" else {}), "p": f"{host}:7"},
    }
    with pytest.raises(InputError, match=r"open to other machines.*write insecure = true in \[security\]"):
        Cluster(**given)
    assert Cluster(**given, security=Security(insecure=True)).address("p", table) == (host.strip("[]"), 7)  # type: ignore[arg-type]
    with_tls = {**given, "security": Security(certs="certs")}
    if table == "metrics":
        with pytest.raises(InputError, match="metrics have no TLS"):
            Cluster(**with_tls)
    else:
        Cluster(**with_tls)


def test_tokens_come_from_a_file_and_the_environment_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 12, security: the configuration can be shown to everybody."""
    path = tmp_path / "tokens"
    path.write_text("# client and token\nteller s3cret\n\nauditor  0ther\n")
    path.chmod(0o600)
    monkeypatch.setenv("BANK_TOKENS", "teller an0ther")
    security = Security(tokens={"t": "ann"}, tokens_file="tokens", tokens_env="BANK_TOKENS", send={"auditor": ["g"]})
    config = Cluster(**GOOD, folder=str(tmp_path), security=security)

    assert read_tokens(config) == {"t": "ann", "s3cret": "teller", "0ther": "auditor", "an0ther": "teller"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("teller", "line 1: give a client and its token"),
        ("\nteller a b", "line 2: give a client and its token"),
        ("te/ller a", "line 1: give a client"),
        ("teller s3cret\nother s3cret", "line 2: this token is another client's already"),
        ("# nobody\n", "no token"),
        ("auditor s3cret", "send: no token is for client 'teller'"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is refused when a site starts, in one line that does not show a token."""
    (tmp_path / "tokens").write_text(text)
    (tmp_path / "tokens").chmod(0o600)
    monkeypatch.setenv("BANK_TOKENS", text)
    for security in (Security(tokens_file="tokens"), Security(tokens_env="BANK_TOKENS")):
        ruled = msgspec.structs.replace(security, send={"teller": ["g"]})
        config = Cluster(**GOOD, folder=str(tmp_path), security=ruled)
        with pytest.raises(InputError) as error:
            read_tokens(config)
        assert why in str(error.value) and "s3cret" not in str(error.value)


def test_a_file_of_tokens_that_others_can_read_or_nobody(tmp_path: Path) -> None:
    config = Cluster(**GOOD, folder=str(tmp_path), security=Security(tokens_file="tokens"))
    with pytest.raises(InputError, match="tokens: No such file"):
        read_tokens(config)
    (tmp_path / "tokens").write_text("teller s3cret")
    (tmp_path / "tokens").chmod(0o644)
    with pytest.raises(InputError, match="others can read it; chmod 600"):
        read_tokens(config)
    with pytest.raises(InputError, match="NOT_THERE is not set"):
        read_tokens(Cluster(**GOOD, security=Security(tokens_env="NOT_THERE")))


@pytest.mark.parametrize(
    "limits", [{"body_bytes": 20 * 2**20 + 1}, {"envelope_bytes": 2**30}, {"envelope_messages": 65_537}]
)
def test_what_would_not_fit_a_frame_is_no_limit(limits: dict[str, int]) -> None:
    """Issue 12 (a): a batch is bounded by what it becomes, also where the site makes it."""
    with pytest.raises(InputError, match=f"limits.{next(iter(limits))}: at most"):
        Cluster(**GOOD, limits=Limits(**limits))


def test_keys_and_data_are_for_their_owner_only(tmp_path: Path) -> None:
    """Issue 12, security: whatever the umask."""
    before = os.umask(0)
    try:
        make_certs(tmp_path / "certs", ["p"])
        config = Cluster(**GOOD, folder=str(tmp_path))
        deploy(config)
    finally:
        os.umask(before)
    for folder in (tmp_path / "certs", config.data_folder):
        assert folder.stat().st_mode & 0o777 == 0o700
    for key in ("ca.key", "p.key"):
        assert (tmp_path / "certs" / key).stat().st_mode & 0o777 == 0o600


def test_certificates_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "p.key").write_text("mine")
    with pytest.raises(InputError, match="there is a key of p already; nothing was changed"):
        make_certs(tmp_path, ["q", "p"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.key"]


def test_a_key_that_cannot_be_used_is_an_error_that_a_dialer_can_catch(tmp_path: Path) -> None:
    """Issue 12 (j): a key unreadable for a moment ended the reconnect loop for good."""
    make_certs(tmp_path / "certs", ["p", "q"])
    config = Cluster(**GOOD, folder=str(tmp_path), security=Security(certs="certs"))
    key = tmp_path / "certs" / "p.key"
    good, other = key.read_bytes(), (tmp_path / "certs" / "q.key").read_bytes()
    secret = serialization.load_pem_private_key(good, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    for wrong in (b"", b"garbage", good[:100], other, secret, None):
        if wrong is None:
            key.unlink()
            key.mkdir()
        else:
            key.write_bytes(wrong)
        for server in (True, False):
            with pytest.raises(LocalError, match=r"no usable ca.pem, p.pem and p.key"):
                context(config, "p", server=server)
    key.rmdir()
    key.write_bytes(good)
    assert context(config, "p", server=True).verify_mode is ssl.CERT_REQUIRED


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
