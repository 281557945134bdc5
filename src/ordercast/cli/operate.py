"""`ordercast group | site | apply`: changes of a cluster that runs."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from ordercast.cli.live import HERE, ClusterFile, Json, LogFormat, run_site
from ordercast.cli.talk import address_of, client_of, seconds_of, token_of
from ordercast.errors import InputError, LocalError, UnreachableError
from ordercast.show.terminal import Screen, shown

if TYPE_CHECKING:
    from ordercast.client.client import Client
    from ordercast.live.config import Cluster

Step = tuple[str, str, tuple[str, ...], dict[str, str]]
"""A change: what, of which group, with which sites, with which options."""


async def _reach(config: "Cluster", at: str | None, token: str | None, seconds: float) -> "Client":
    """Return a connected client of the site asked for, or of the first one that answers."""
    addresses = [address_of(config, at)] if at is not None else list(config.clients.values())
    address_of(config, at)
    said = ""
    for address in addresses:
        client = client_of(config, address, token, seconds)
        try:
            return await client.__aenter__()
        except UnreachableError as error:
            said = str(error)
    raise UnreachableError(said)


def _do(config: "Cluster", at: str | None, token: str | None, seconds: float, steps: list[Step]) -> int:
    """Ask for changes, one after the other, and say when each is in force."""

    async def run() -> int:
        client = await _reach(config, at, token, seconds)
        try:
            for what, group, sites, options in steps:
                told = _told((what, group, sites, options))
                try:
                    async with asyncio.timeout(seconds):
                        await client.change(what, group, sites, options)
                except TimeoutError:
                    raise LocalError(
                        f"{told}: not in force within {seconds:g} s; it was asked for, and may still be done"
                    ) from None
                print(f"{told}: done")
            return 0
        finally:
            await client.__aexit__(None, None, None)

    return asyncio.run(run())


def _told(step: Step) -> str:
    what, group, sites, options = step
    words = [what, group, ",".join(sites), " ".join(f"{name}={value}" for name, value in options.items())]
    return " ".join(shown(word) for word in words if word)


def group(
    what: Literal["list", "create", "delete", "join", "leave", "move"],
    name: str | None = None,
    sites: str | None = None,
    /,
    *,
    policy: Literal["available", "atomic"] | None = None,
    delivery: Literal["agreed", "copied", "safe"] | None = None,
    cluster: ClusterFile = HERE,
    at: str | None = None,
    timeout: float = 30.0,
    token: str | None = None,
    token_file: Path | None = None,
    as_json: Json = False,
) -> int:
    """List, create and delete the groups of a cluster; let sites join and leave them, or sequence them.

    Changes take a cluster that runs with policy = atomic or available.

    Example: ordercast group create orders main-1,main-2

    Parameters
    ----------
    what
        list, create, delete, join, leave or move (to another sequencer, with protocol sequencer)
    name
        The group.
    sites
        The members of a new group, or the site that joins or leaves; several with commas. With move, the sites that
        may sequence the group and all that is ordered with it; without any, a member does.
    policy
        Of a new group: what happens when a member fails.
    delivery
        Of a new group: when messages are handed to the application.
    cluster
        The configuration.
    at
        The site to ask; without it, the first that answers.
    timeout
        Seconds to wait for the site, and for the change.
    token
        The client's token; better in ORDERCAST_TOKEN or in a file: others can see the command line.
    token_file
        A file with the client's token.
    as_json
        With list: print JSON.

    """
    from ordercast.live.config import read_cluster

    config = read_cluster(cluster)
    if what == "list":
        if name is not None:
            raise InputError("group list takes no name")
        return _list(config, at, token_of(token, token_file), seconds_of(timeout), as_json=as_json)
    _check_changes(config, cluster)
    if name is None:
        raise InputError(f"group {what}: which group?")
    members = tuple(site for site in (sites or "").split(",") if site)
    if what not in ("delete", "move") and not members:
        raise InputError(f"group {what} {name}: which {'sites' if what == 'create' else 'site'}?")
    options = {key: str(value) for key, value in (("policy", policy), ("delivery", delivery)) if value}
    if options and what != "create":
        raise InputError(f"group {what} takes no --{next(iter(options))}")
    steps: list[Step] = [(str(what), name, members, options)]
    if what in ("join", "leave"):
        steps = [(str(what), name, (site,), {}) for site in members]
    return _do(config, at, token_of(token, token_file), seconds_of(timeout), steps)


def _check_changes(config: "Cluster", path: Path) -> None:
    if not config.changes:
        raise InputError(f"{path}: groups are fixed; policy = atomic or available lets them change")


def _list(config: "Cluster", at: str | None, token: str | None, seconds: float, *, as_json: bool) -> int:
    """List the groups: of the cluster that runs where they change, of the file where they are fixed."""
    rows = asyncio.run(_running(config, at, token, seconds)) if config.changes else _planned(config)
    if as_json:
        print(msgspec.json.encode(rows).decode())
        return 0
    table = Table(title="groups")
    heads = ("group", "ordered by", "class", "members") if not config.changes else (
        "group", "ordered by", "class", "members", "away", "protocol", "policy", "delivery")  # fmt: skip
    for head in heads:
        table.add_column(head)
    for row in rows:
        cells = [row[head.replace(" ", "_")] for head in heads]
        told = [" ".join(cell) if isinstance(cell, list) else str(cell or "") for cell in cells]
        table.add_row(*(Text(shown(cell)) for cell in told))
    Screen().print(table)
    return 0


def _planned(config: "Cluster") -> list[dict[str, Any]]:
    from ordercast.live.config import deploy

    deployment = deploy(config)
    rows: list[dict[str, Any]] = []
    for name, members in deployment.groups.members.items():
        orderer = deployment.orders(name)
        classed = deployment.groups.orders[deployment.groups.order_of((name,))][0]
        rows.append({"group": name, "members": list(members), "class": classed, "ordered_by": orderer})
    return rows


async def _configuration(config: "Cluster", at: str | None, token: str | None, seconds: float) -> dict[str, Any]:
    client = await _reach(config, at, token, seconds)
    try:
        async with asyncio.timeout(seconds):
            return await client.configuration()
    except TimeoutError:
        raise UnreachableError(f"{client.address} does not answer within {seconds:g} s") from None
    finally:
        await client.__aexit__(None, None, None)


async def _running(config: "Cluster", at: str | None, token: str | None, seconds: float) -> list[dict[str, Any]]:
    known = await _configuration(config, at, token, seconds)
    rows = []
    for name, told in known["groups"].items():
        away = [site for site in told["members"] if site not in told["there"]]
        rows.append({"group": name, **told, "members": list(told["members"]), "away": away})
    return rows


def site(
    name: str,
    which: str | None = None,
    /,
    *,
    cluster: ClusterFile = HERE,
    address: str | None = None,
    clients: str | None = None,
    listen: str | None = None,
    join: str | None = None,
    data: Path = Path("data"),
    certs: Path | None = None,
    export: Path | None = None,
    at: str | None = None,
    timeout: float = 30.0,
    token: str | None = None,
    token_file: Path | None = None,
    verbose: Annotated[bool, Parameter(negative="")] = False,
    log_format: LogFormat = "text",
) -> int:
    """Run one site until it is told to stop (SIGTERM or Ctrl-C); or add, remove or move a site of a running cluster.

    `ordercast site NAME` runs a site of a file. `ordercast site NAME --join HOST:PORT --address HOST:PORT` adds this
    machine to a cluster that runs, and learns everything from it. `ordercast site add|remove|replace NAME` speaks to a
    cluster that runs; replace is for a site that comes back at another address, with its disk or without.

    Example: ordercast site main-1 --cluster cluster.toml

    Parameters
    ----------
    name
        The site to run; or add, remove or replace.
    which
        With add, remove and replace: the site.
    cluster
        The configuration.
    address
        With --join, add and replace: where other sites reach this one.
    clients
        With --join, add and replace: where clients reach it.
    listen
        Where it listens to other sites, when they reach it through something else: a proxy, a port of a container.
    join
        The client address of any site of a cluster that runs.
    data
        With --join: the folder for the history.
    certs
        With --join: the folder with ca.pem, and the certificate and key of this site.
    export
        With --join: the folder for a run directory.
    at
        With add, remove and replace: the site to ask.
    timeout
        Seconds to wait for the cluster.
    token
        The client's token; better in ORDERCAST_TOKEN or in a file: others can see the command line.
    token_file
        A file with the client's token.
    verbose
        Log more.
    log_format
        text, or json: an object for each line, with the event and its facts.

    """
    from ordercast.live.config import read_cluster

    if name in ("add", "remove", "replace"):
        if which is None:
            raise InputError(f"site {name}: which site?")
        config = read_cluster(cluster)
        _check_changes(config, cluster)
        options = {}
        if name != "remove":
            if address is None:
                raise InputError(f"site {name} {which}: where is it? --address HOST:PORT")
            options = {"address": f"{address}/{clients}" if clients else address}
        step: Step = ("remove" if name == "remove" else "add", "", (which,), options)
        return _do(config, at, token_of(token, token_file), seconds_of(timeout), [step])
    if which is not None:
        raise InputError(f"site {name} {which}: site add|remove|replace NAME, or site NAME")
    if join is None:
        for option, given in (("--address", address), ("--clients", clients), ("--certs", certs), ("--export", export)):
            if given is not None:
                raise InputError(f"{option} goes with --join, add or replace; the file says where {name} is")
        config = read_cluster(cluster)
        if name not in config.sites:
            raise InputError(f"{cluster}: there is no site {name!r} (sites: {', '.join(config.sites)})")
        return run_site(config, name, verbose=verbose, log_format=log_format, listen=listen)
    from ordercast.cli.joining import joined

    if address is None:
        raise InputError("--join takes --address HOST:PORT: where other sites reach this one")
    secret = token_of(token, token_file)
    config = asyncio.run(joined(name, join, address, clients, data, certs, export, secret, seconds_of(timeout)))
    return run_site(config, name, verbose=verbose, log_format=log_format, joins=True, listen=listen)


def apply(
    cluster: Path = HERE,
    /,
    *,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(name=("--yes", "-y"), negative="")] = False,
    at: str | None = None,
    timeout: float = 30.0,
    token: str | None = None,
    token_file: Path | None = None,
) -> int:
    """Make a cluster that runs what its file says: shows the difference, asks, and does it.

    Example: ordercast apply cluster.toml --dry-run

    Parameters
    ----------
    cluster
        The configuration as it should be.
    dry_run
        Show the difference only; the exit code is 1 when there is one.
    yes
        Do not ask.
    at
        The site to ask; without it, the first that answers.
    timeout
        Seconds to wait for the site, and for each change.
    token
        The client's token; better in ORDERCAST_TOKEN or in a file: others can see the command line.
    token_file
        A file with the client's token.

    """
    from ordercast.live.config import read_cluster

    config, secret, seconds = read_cluster(cluster), token_of(token, token_file), seconds_of(timeout)
    _check_changes(config, cluster)
    running = asyncio.run(_configuration(config, at, secret, seconds))
    steps = _difference(config, running)
    if not steps:
        print(f"{running['cluster']} runs configuration {running['number']}, which is what {cluster} says")
        return 0
    for step in steps:
        print(f"  {_told(step)}")
    if dry_run:
        return 1
    if not yes and not Confirm.ask(f"do {len(steps)} changes to {running['cluster']}?", console=Screen()):
        print("nothing was changed")
        return 1
    return _do(config, at, secret, seconds, steps)


def _difference(config: "Cluster", running: dict[str, Any]) -> list[Step]:
    """Return what turns what runs into what the file says, in an order in which each step is allowed."""
    from ordercast.live.changing import setup_of

    for what, said, is_now in (
        ("name", config.name, running["cluster"]),
        ("causal", config.causal, running["causal"]),
        ("unions", sorted("+".join(sorted(set(union))) for union in config.unions), sorted(running["unions"])),
    ):
        if said != is_now:
            raise InputError(f"{what} cannot be changed while a cluster runs: it is {is_now}, the file says {said}")
    wanted, steps = setup_of(config), list[Step]()
    sites, groups = running["sites"], running["groups"]
    for name, address in wanted.sites.items():
        known = sites.get(name)
        if known is None or address != (f"{known['sites']}/{known['clients']}" if known["clients"] else known["sites"]):
            steps.append(("add", "", (name,), {"address": address}))
    if str(wanted.level) != running["level"]:
        steps.append(("level", "", (), {"level": str(wanted.level)}))
    for name, group in wanted.groups.items():
        options = {key: str(getattr(group, key)) for key in ("protocol", "planner", "policy", "delivery")}
        if name not in groups:
            chosen = {key: options[key] for key in ("policy", "delivery")}
            steps.append(("create", name, group.members, chosen))
            continue
        now = groups[name]
        steps += [("join", name, (s,), {}) for s in group.members if s not in now["members"]]
        steps += [("leave", name, (s,), {}) for s in now["members"] if s not in group.members and s in wanted.sites]
        options |= {"migrate": str(group.migrate).lower()}
        options |= {key: str(getattr(group, key)) for key in ("direct_bytes", "copies")}
        now = {**now, "migrate": str(now["migrate"]).lower()}
        now |= {key: str(now[key]) for key in ("direct_bytes", "copies")}
        changed = {key: value for key, value in options.items() if now[key] != value}
        if changed:
            steps.append(("set", name, (), changed))
        named = () if "protocol" in changed and not group.sequencers else tuple(now["sequencers"])
        if named != group.sequencers and not group.migrate:
            steps.append(("move", name, group.sequencers, {}))
    steps += [("delete", name, (), {}) for name in groups if name not in wanted.groups]
    steps += [("remove", "", (name,), {}) for name in sites if name not in wanted.sites]
    return steps
