"""`cluster.toml` as one frozen value, checked; and the deployment it asks for."""

import hashlib
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ordercast.core.configuration import Configuration
from ordercast.errors import InputError
from ordercast.names import ClassRule, GroupId, Level, Planner, SiteId
from ordercast.planning.plan import Plan, read_plan
from ordercast.protocols.registry import MACHINES, Deployment, class_rule
from ordercast.verify.plans import judge

Positive = Annotated[int, msgspec.Meta(gt=0)]
# What a starting site spends on its plan: steps, not seconds, because every site must find the same one. On random
# families of 5 to 600 memberships more steps do not find a mean depth lower by 3 %.
STEPS_PER_MEMBERSHIP, STEPS_AT_MOST = 1_000, 200_000
PATIENCE = 0.5  # seconds without an acknowledgement before a site says again what it sent last


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every queue has a bound; what happens when it is reached is in docs/live.md."""

    body_bytes: Positive = 16 * 2**20
    """A longer message is refused."""
    envelope_bytes: Positive = 64 * 2**10
    """A batch is sent when it has so many bytes (or at the next turn of the loop)."""
    envelope_messages: Positive = 1024
    window_bytes: Positive = 8 * 2**20
    """A source waits while so many bytes of its own are not yet safe."""
    inbox_bytes: Positive = 16 * 2**20
    """A site takes no more messages in while its slowest reader is so far behind."""
    retain_messages: Positive = 1_000_000
    """A reader may resume from a position at most so far behind."""
    checkpoint_bytes: Positive = 64 * 2**20
    """A site keeps its whole state after so many bytes of records; a restart steps through what came after."""
    connections: Positive = 1024


class Security(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """mTLS between sites, tokens and rights for clients."""

    certs: str | None = None
    """Folder with ca.pem, and SITE.pem and SITE.key for each site; without it links are plain TCP."""
    tokens: dict[str, str] = {}
    """Token to client name; without any, clients need none."""
    send: dict[str, list[GroupId]] = {}
    """Client name to the groups it may send to. Without any entry all may; with one, who has none may not."""
    receive: dict[str, list[GroupId]] = {}
    """The same for what it may read."""


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who is where, which groups there are, and how they are ordered."""

    sites: dict[SiteId, str]
    """Name to host:port, for the other sites."""
    groups: dict[GroupId, list[SiteId]]
    unions: list[list[GroupId]] = []
    """Groups that messages go to at once: planned like groups. Others are refused where they could break the order."""
    name: str = "ordercast"
    clients: dict[SiteId, str] = {}
    """Name to host:port, for clients; a site that is not here takes none."""
    metrics: dict[SiteId, str] = {}
    """Name to host:port, for Prometheus and health checks."""
    protocol: str = "propagation"
    planner: Planner | None = None
    """By default chosen by the size of the table: `best` while it is small."""
    level: Level = Level.ACYCLIC
    max_load: Positive | None = None
    """How busy `best` may make a site, in messages when every group gets one; without it no busier than greedy does."""
    causal: bool = False
    durable: bool = True
    data: str = "data"
    """Folder for histories and the plan, from where the file is."""
    export: str | None = None
    """Folder for run directories (Parquet), written while the sites run."""
    limits: Limits = Limits()
    security: Security = Security()
    folder: str = "."

    def __post_init__(self) -> None:
        """Check what was given, in code as in a file; raises InputError."""
        for field in msgspec.structs.fields(Cluster):
            try:
                value = msgspec.convert(getattr(self, field.name), field.type)
            except msgspec.ValidationError as error:
                raise InputError(f"{field.name}: {error}") from None
            msgspec.structs.force_setattr(self, field.name, value)
        for problem in _problems(self):
            raise InputError(problem)

    @property
    def data_folder(self) -> Path:
        """Where the sites keep what they must not forget."""
        return Path(self.folder) / self.data

    def address(self, site: SiteId, of: Literal["sites", "clients", "metrics"] = "sites") -> tuple[str, int]:
        """Return host and port."""
        host, _, port = getattr(self, of)[site].rpartition(":")
        return host.strip("[]"), int(port)


def read_cluster(path: Path) -> Cluster:
    """Read and check a configuration; says what is wrong and where."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
        cluster = msgspec.convert({**given, "folder": str(path.parent)}, Cluster)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {error}") from None
    return cluster


def _problems(cluster: Cluster) -> Iterator[str]:
    if not cluster.groups or not cluster.sites:
        yield "needs [sites] and [groups], each with at least one entry"
    if cluster.protocol not in MACHINES:
        yield f"protocol is one of {', '.join(MACHINES)}, not {cluster.protocol!r}"
    for kind, names in (("site", cluster.sites), ("group", cluster.groups)):
        yield from (f"{name!r} is no name for a {kind}: {NAMES}" for name in names if not _is_name(name))
    for group, members in cluster.groups.items():
        yield from (f"group {group}: {site!r} is not in [sites]" for site in members if site not in cluster.sites)
        if not members or len(set(members)) < len(members):
            yield f"group {group}: empty, or a site is named twice"
    for union in cluster.unions:
        if len(set(union)) < 2 or not set(union) <= cluster.groups.keys():
            yield f"unions: {'+'.join(union)!r} must name at least two groups that are in [groups]"
    yield from _wrong_addresses(cluster)
    yield from _wrong_rights(cluster)
    if cluster.limits.body_bytes > 20 * 2**20:
        yield "limits.body_bytes: at most 20971520"


NAMES = "not empty, no + and /, no dot or space first, no space last, nothing that cannot be printed"


def _is_name(name: str) -> bool:
    """Names stand in logs, paths and on the command line, where `a+b` is two groups."""
    return bool(name) and name == name.strip() and name.isprintable() and name[0] != "." and not {"+", "/"} & set(name)


def _wrong_addresses(cluster: Cluster) -> Iterator[str]:
    tables = {"sites": cluster.sites, "clients": cluster.clients, "metrics": cluster.metrics}
    for table, addresses in tables.items():
        for site, address in addresses.items():
            host, _, port = address.rpartition(":")
            if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                yield f"[{table}] {site}: {address!r} is not host:port"
            if site not in cluster.sites:
                yield f"[{table}] {site!r} is not in [sites]"
    seen = list(cluster.sites.values())
    yield from (f"[sites] {address} is given twice" for address in seen if seen.count(address) > 1)
    for site in cluster.sites:
        own = [addresses[site] for addresses in tables.values() if site in addresses]
        yield from (f"site {site}: {address} is given twice" for address in own if own.count(address) > 1)


def _wrong_rights(cluster: Cluster) -> Iterator[str]:
    names = set(cluster.security.tokens.values()) or {"anyone"}
    for right in ("send", "receive"):
        for client, groups in getattr(cluster.security, right).items():
            if client not in names:
                yield f"[security] {right}: no token is for client {client!r} (clients: {', '.join(sorted(names))})"
            yield from (
                f"[security] {right}: there is no group {group!r}" for group in groups if group not in cluster.groups
            )


def deploy(cluster: Cluster) -> Deployment:
    """Choose the classes and the plan: computed once, then read by every site from the data folder, and judged."""
    members = {group: sorted(sites) for group, sites in sorted(cluster.groups.items())}
    for union in cluster.unions:
        names = sorted(set(union))
        members["+".join(names)] = sorted({site for name in names for site in cluster.groups[name]})
    rule = class_rule(cluster.protocol, cluster.level, causal=cluster.causal)
    kind = MACHINES[cluster.protocol]
    plan = None if rule is None else _plan(cluster, members, rule)
    classes = [list(members)] if plan is None else plan.classes
    groups = Configuration.of(members, classes, sorted(cluster.sites), causal=cluster.causal)
    planned = plan if kind.plan else None
    level = str(cluster.level)
    return Deployment(
        cluster.protocol, groups, planned, level, cluster.causal, receipts=kind.receipts, patience=PATIENCE
    )


def plan_hash(cluster: Cluster, deployment: Deployment) -> str:
    """Return what two sites must agree on before they talk."""
    what = [cluster.protocol, cluster.level, cluster.causal, cluster.durable, deployment.groups.orders]
    what += [deployment.groups.members, deployment.groups.sources, deployment.groups.unions, deployment.plan]
    return hashlib.sha256(msgspec.json.encode(what, order="sorted")).hexdigest()[:16]


def _plan(cluster: Cluster, members: dict[GroupId, list[SiteId]], rule: ClassRule) -> Plan:
    """Plan, or read what was planned before; machines that need no plan take its classes."""
    planner = cluster.planner if MACHINES[cluster.protocol].plan else Planner.CENTRAL  # None: by size
    asked = [planner, cluster.level, rule, cluster.max_load, sorted(members.items())]
    name = hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:16]
    path = cluster.data_folder / f"plan-{name}.json"
    if path.exists():
        plan = read_plan(path)
        verdict = judge(plan, members)
        if (broken := verdict.broken) is not None or plan.level != cluster.level:
            why = f"{broken} does not hold: {verdict.findings[broken].example}" if broken else f"is for {plan.level}"
            raise InputError(f"{path}: not a plan for this cluster ({why}); remove it, and it is made again")
        return plan
    from ordercast.membership.table import Membership  # planning is heavy to import, and needed once per cluster
    from ordercast.planning.make import make_plan
    from ordercast.planning.planners import default_planner
    from ordercast.planning.request import Budget, Request

    membership = Membership.of(cluster.groups).with_unions(cluster.unions)
    budget = Budget(steps=min(STEPS_PER_MEMBERSHIP * len(membership), STEPS_AT_MOST))
    max_load = cluster.max_load if MACHINES[cluster.protocol].plan else None
    chosen = planner or default_planner(membership, cluster.level, rule)
    request = Request(chosen, cluster.level, rule, max_load=max_load, budget=budget)
    plan = make_plan(membership, request).plan
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(msgspec.json.encode(plan))
        new.replace(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return plan
