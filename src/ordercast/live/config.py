"""`cluster.toml` as one frozen value, checked; and the deployment it asks for."""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ordercast.core.configuration import Configuration
from ordercast.epochs.setup import COPIES
from ordercast.errors import InputError
from ordercast.live import rules
from ordercast.membership.toml import read_toml
from ordercast.names import ClassRule, Delivery, GroupId, Level, Planner, Policy, Shape, SiteId
from ordercast.node.settings import Limits, Positive, Settings
from ordercast.protocols.registry import MACHINES, Deployment, class_rule, placed

PATIENCE = 0.5  # seconds without an acknowledgement before a site says again what it sent last


class Security(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """mTLS between sites, tokens and rights for clients."""

    certs: str | None = None
    """Folder with ca.pem, and SITE.pem and SITE.key for each site; without it links are plain TCP."""
    insecure: bool = False
    """Addresses other than the loopback without TLS: anybody who reaches them can read, and greet as any site."""
    tokens: dict[str, str] = {}
    """Token to client name; without any, here, in the file or in the environment, clients need none."""
    tokens_file: str | None = None
    """A file with more of them, a client and its token in each line; read when a site starts."""
    tokens_env: str | None = None
    """The name of an environment variable with more of them, in the same form."""
    send: dict[str, list[GroupId]] = {}
    """Client name to the groups it may send to. Without any rule all may; with one, here or below, the rest may not."""
    receive: dict[str, list[GroupId]] = {}
    """The same for what it may read."""
    admin: list[str] = []
    """Clients that may change groups and sites. Who has any right, of these three, may ask for the status."""


class GroupOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is different for one group."""

    policy: Policy | None = None
    delivery: Delivery | None = None


class Swap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tree of the swap object, for arrow, combining and hybrid (HTW00 §4-6)."""

    tree: Shape = Shape.BALANCED
    """balanced, star, path, or latency: a spanning tree of near neighbours."""
    latencies: list[tuple[SiteId, SiteId, Annotated[float, msgspec.Meta(gt=0)]]] = []
    """For a tree by latency: two sites, and how long a message takes between them; others take 1."""
    by_source: bool = False
    """Who finds the predecessor tells the source, which multicasts (HTW00 §3); otherwise it multicasts itself (§4)."""
    upper: int = 1
    """For hybrid: so many levels of the tree below its root run the arrow; those below combine."""


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
    sequencers: list[SiteId] = []
    """For protocol sequencer: the sites that sequence, also such as are in no group; the classes are shared out among
    them by load. By default a member sequences."""
    migrate: bool = False
    """For protocol sequencer, where groups change: what is sequenced mostly for one other site moves there."""
    direct_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Envelopes of so many bytes or more go another way than the order, which only gives them their place; 0: none.
    With protocol sequencer they go from their senders to the members, with propagation past extra nodes."""
    swap: Swap = Swap()
    causal: bool = False
    groups_alone: bool = False
    """With protocol sequencer and causal order: a total order in each group alone, and causal order across groups
    (KIN §5, the hybrid order)."""
    durable: bool = True
    data: str = "data"
    """Folder for histories and the plan, from where the file is."""
    export: str | None = None
    """Folder for run directories (Parquet), written while the sites run."""
    policy: Literal["fixed", "atomic", "available"] = "fixed"
    """`fixed`: groups never change. Otherwise they do, and this is what happens to the groups of a site that fails:
    with `atomic` they wait for it, with `available` the others go on without it (docs/protocols/epochs.md)."""
    delivery: Delivery | None = None
    """Where groups change, when a message is handed to the application: `agreed`, `copied` or `safe`. By default
    `safe` with `available`, because others may be rolled back there; `agreed` with `atomic`, where nothing is."""
    copies: Annotated[int, msgspec.Meta(ge=COPIES)] = COPIES
    """With delivery `copied`: so many members have a message, durably, before an application gets it."""
    options: dict[GroupId, GroupOptions] = {}
    """Policy and delivery of single groups."""
    suspect_after: float = 3.0
    """Where groups change: seconds without a word after which a site is suspected to have failed."""
    states: bool = False
    """Where groups change: whether applications give the state of a group to those who join it (`snapshot=`)."""
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
        for problem in rules.problems(self):
            raise InputError(problem)

    @property
    def changes(self) -> bool:
        """Whether groups change and sites may fail for good."""
        return self.policy != "fixed"

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
    given = read_toml(path)
    try:
        return msgspec.convert({**given, "folder": str(path.parent)}, Cluster)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {error}") from None


def private_folder(path: Path) -> None:
    """Make a folder that only its owner can look into; one that is there stays as it is."""
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)


def deploy(cluster: Cluster) -> Deployment:
    """Choose the classes and the plan: computed once, then read by every site from the data folder, and judged."""
    from ordercast.planning.cache import Wanted, cached_plan  # brings the judge of plans along

    kind = MACHINES[cluster.protocol]
    rule = class_rule(cluster.protocol, cluster.level, causal=cluster.causal)
    planner = cluster.planner if kind.plan else Planner.CENTRAL  # machines that need no plan take its classes
    max_load = cluster.max_load if kind.plan else None
    wanted = Wanted(cluster.groups, cluster.unions, cluster.level, rule or ClassRule.S1, planner, max_load)
    members, plan = wanted.members(), None
    if rule is not None and not cluster.groups_alone:
        private_folder(cluster.data_folder)
        plan = cached_plan(cluster.data_folder, wanted)
    classes = [list(members)] if plan is None else plan.classes
    classes = [[group] for group in members] if cluster.groups_alone else classes
    groups = Configuration.of(members, classes, sorted(cluster.sites), causal=cluster.causal)
    return Deployment(
        cluster.protocol, groups, plan if kind.plan else None, str(cluster.level), cluster.causal,
        receipts=kind.receipts, patience=PATIENCE, direct_bytes=cluster.direct_bytes,
        placed=placed(groups, cluster.sequencers), shape=cluster.swap.tree, upper=cluster.swap.upper,
        by_source=cluster.swap.by_source, latencies={(a, b): took for a, b, took in cluster.swap.latencies},
    )  # fmt: skip


def settings_of(cluster: Cluster, deployment: Deployment) -> Settings:
    """Return what a node must know of its cluster."""
    groups = deployment.groups
    agreed = [cluster.protocol, cluster.level, cluster.causal, cluster.durable, groups.orders]
    agreed += [groups.members, groups.sources, groups.unions, deployment.plan]
    agreed += [sorted(set(cluster.sequencers))] if cluster.sequencers else []
    agreed += ["direct", cluster.direct_bytes] if cluster.direct_bytes else []  # earlier versions know of none
    agreed += ["swap", cluster.swap] if cluster.swap != Swap() else []  # alone: the orders tell
    return Settings(
        cluster=cluster.name,
        sites=frozenset(cluster.sites),
        durable=cluster.durable,
        plan=hashlib.sha256(msgspec.json.encode(agreed, order="sorted")).hexdigest()[:16],
        described=described(cluster),
        limits=cluster.limits,
        exporting=cluster.export is not None,
        data=str(cluster.data_folder),
    )


def described(cluster: Cluster) -> bytes:
    """Return what decides on the order, in words, as JSON: kept with the history."""
    told = {
        "policy": cluster.policy,
        "protocol": cluster.protocol,
        "level": str(cluster.level),
        "causal": cluster.causal,
        "planner": str(cluster.planner or "by size"),
        "unions": sorted("+".join(sorted(set(union))) for union in cluster.unions),
        "max_load": cluster.max_load,
        **({"direct_bytes": cluster.direct_bytes} if cluster.direct_bytes else {}),
        **({"swap": cluster.swap} if cluster.swap != Swap() else {}),
        **({"groups_alone": True} if cluster.groups_alone else {}),
        **({"sequencers": sorted(set(cluster.sequencers))} if cluster.sequencers else {}),
        "sites": sorted(cluster.sites),
        "groups": {group: sorted(members) for group, members in sorted(cluster.groups.items())},
    }
    return msgspec.json.encode(told)
