"""What a configuration must not be: names, addresses, rights and limits, each refused in one line."""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ordercast.epochs.setup import COPIES
from ordercast.errors import bounded
from ordercast.names import SiteId
from ordercast.protocols.registry import MACHINES
from ordercast.wire.batch import MESSAGES_AT_MOST

if TYPE_CHECKING:
    from ordercast.live.config import Cluster, Security

LARGEST = {"body_bytes": 20 * 2**20, "envelope_bytes": 20 * 2**20, "envelope_messages": MESSAGES_AT_MOST}
"""What is packed into one envelope must fit a frame."""

NAMES = "1 to 63 letters, digits, - _ . of ASCII, a letter or digit first and last, not an IP address"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def problems(cluster: "Cluster") -> Iterator[str]:
    """Yield what is wrong, the most basic first."""
    if not cluster.groups or not cluster.sites:
        yield "needs [sites] and [groups], each with at least one entry"
    if cluster.protocol not in MACHINES:
        yield f"protocol is one of {', '.join(MACHINES)}, not {cluster.protocol!r}"
    yield from _wrong_names(cluster)
    for group, members in cluster.groups.items():
        yield from (f"group {group}: {site!r} is not in [sites]" for site in members if site not in cluster.sites)
        if not members or len(set(members)) < len(members):
            yield f"group {group}: empty, or a site is named twice"
    for union in cluster.unions:
        if len(set(union)) < 2 or not set(union) <= cluster.groups.keys():
            yield f"unions: {'+'.join(union)!r} must name at least two groups that are in [groups]"
    if cluster.sequencers and not (cluster.protocol in MACHINES and MACHINES[cluster.protocol].sequencers):
        yield f"sequencers: protocol {cluster.protocol} has none"
    if cluster.migrate and not (cluster.protocol in MACHINES and MACHINES[cluster.protocol].sequencers):
        yield f"migrate: protocol {cluster.protocol} has no sequencers"
    if cluster.direct_bytes and not (cluster.protocol in MACHINES and MACHINES[cluster.protocol].direct):
        yield f"direct_bytes: with protocol {cluster.protocol} bodies go the way of the order"
    if cluster.groups_alone:
        if not (cluster.protocol in MACHINES and MACHINES[cluster.protocol].groups_alone and cluster.causal):
            yield "groups_alone is KIN's hybrid order: it takes protocol = sequencer and causal = true"
        if cluster.unions:
            yield "groups_alone: each group is ordered alone, so nothing is sent to the groups of a union at once"
        if cluster.policy != "fixed":
            yield f"groups_alone is for groups that do not change, not for policy {cluster.policy}"
    if cluster.migrate and cluster.policy == "fixed":
        yield "migrate is for groups that change: it takes policy = atomic or available"
    for site in cluster.sequencers:
        if site not in cluster.sites:
            yield f"sequencers: {bounded(site)!r} is not in [sites]"
    yield from _wrong_swap(cluster)
    yield from _wrong_addresses(cluster)
    yield from _wrong_rights(cluster)
    yield from _wrong_changes(cluster)
    for limit, at_most in LARGEST.items():
        if getattr(cluster.limits, limit) > at_most:
            yield f"limits.{limit}: at most {at_most}"


def _wrong_swap(cluster: "Cluster") -> Iterator[str]:
    """Yield what is wrong with the tree of a swap object."""
    swap, kind = cluster.swap, MACHINES.get(cluster.protocol)
    given = {"tree": swap.tree != "balanced", "by_source": swap.by_source, "upper": swap.upper != 1}
    for name, is_given in given.items():
        if is_given and kind is not None and not getattr(kind, name):
            yield f"[swap] {name}: protocol {cluster.protocol} takes none"
        if is_given and cluster.policy != "fixed":
            yield f"[swap] {name} is for groups that do not change: it takes policy = fixed"
    if swap.upper < 0:
        yield f"[swap] upper is at least 0, not {swap.upper}"
    if bool(swap.latencies) != (swap.tree == "latency"):
        yield "[swap] tree latency takes latencies, and other trees take none"
    for one, other, _ in swap.latencies:
        yield from (
            f"[swap] latencies: {bounded(s)!r} is not in [sites]" for s in (one, other) if s not in cluster.sites
        )


RESERVED = ("add", "remove", "replace")
"""`ordercast site add NAME` is a command, so no site is called that."""


def _wrong_changes(cluster: "Cluster") -> Iterator[str]:
    """Yield what does not go together with groups that change, or only with them."""
    if cluster.policy == "fixed":
        changing = (("delivery", cluster.delivery), ("states", cluster.states), ("copies", cluster.copies != COPIES))
        for name, given in changing:
            if given:
                yield f"{name} is for groups that change: it takes policy = atomic or available"
        if cluster.options:
            yield "options are for groups that change: they take policy = atomic or available"
        return
    deliveries = {cluster.delivery, *(options.delivery for options in cluster.options.values())}
    if cluster.copies != COPIES and "copied" not in deliveries:
        yield "copies is for delivery copied"
    if not cluster.durable:
        yield f"policy {cluster.policy} takes durable = true: a site that forgets its promises decides twice"
    if cluster.max_load is not None:
        yield f"policy {cluster.policy} takes no max_load"
    if not 0.2 <= cluster.suspect_after <= 3600:
        yield f"suspect_after: {cluster.suspect_after:g} is not between 0.2 and 3600 seconds"
    for group, options in cluster.options.items():
        if group not in cluster.groups:
            yield f"[options] there is no group {bounded(group)!r}"
        policy = options.policy or cluster.policy
        delivery = options.delivery or cluster.delivery
        if cluster.causal and policy == "available" and delivery in ("agreed", "copied"):
            yield f"[options] {group}: causal order with policy available takes delivery safe"
    if cluster.causal and cluster.policy == "available" and cluster.delivery in ("agreed", "copied"):
        yield "causal order with policy available takes delivery safe"


def is_name(name: str) -> bool:
    """Names stand in paths, certificates, logs, metrics and on the command line, where `a+b` is two groups.

    ASCII only: names that look the same must be the same, and file systems and certificates do not agree on others.
    """
    return _NAME.fullmatch(name) is not None and not _is_ip(name)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _wrong_names(cluster: "Cluster") -> Iterator[str]:
    clients = {name: name for name in cluster.security.tokens.values()}
    tables: dict[str, Iterable[str]] = {"group": cluster.groups, "client": clients}
    for kind, names in tables.items():
        yield from (f"{bounded(name)!r} is no name for a {kind}: {NAMES}" for name in names if not is_name(name))
    seen: dict[str, SiteId] = {}
    for site in cluster.sites:
        yield from wrong_site(site)
        if (other := seen.setdefault(site.lower(), site)) != site:
            yield f"sites {other} and {site} differ in case only: not every file system tells their folders apart"


def wrong_address(cluster: "Cluster", table: str, site: SiteId, address: str) -> Iterator[str]:
    """Yield what is wrong with one address."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        yield f"[{table}] {site}: {bounded(address)!r} is not host:port"
    elif not _is_loopback(host) and (how := _not_secured(cluster, table)):
        told = f"[{table}] {site}: {bounded(address)} is open to other machines, and {how}"
        yield f"{told}; if that is meant, write insecure = true in [security]"


def wrong_site(name: str) -> Iterator[str]:
    """Yield why a site may not be called that."""
    if not is_name(name):
        yield f"{bounded(name)!r} is no name for a site: {NAMES}"
    if name.lower() == "ca":
        yield f"a site may not be called {name!r}: the certificate of the CA has this name"
    if name in RESERVED:
        yield f"a site may not be called {name!r}: `ordercast site {name}` is a command"


def _wrong_addresses(cluster: "Cluster") -> Iterator[str]:
    tables = {"sites": cluster.sites, "clients": cluster.clients, "metrics": cluster.metrics}
    for table, addresses in tables.items():
        for site, address in addresses.items():
            yield from wrong_address(cluster, table, site, address)
            if site not in cluster.sites:
                yield f"[{table}] {site!r} is not in [sites]"
    seen = list(cluster.sites.values())
    yield from (f"[sites] {address} is given twice" for address in seen if seen.count(address) > 1)
    for site in cluster.sites:
        own = [addresses[site] for addresses in tables.values() if site in addresses]
        yield from (f"site {site}: {address} is given twice" for address in own if own.count(address) > 1)


def _not_secured(cluster: "Cluster", table: str) -> str | None:
    """Return why an address that others can reach is not safe; None when it is, or when it is meant."""
    if cluster.security.insecure:
        return None
    if table == "metrics":
        return "metrics have no TLS"
    return "there is no TLS without security.certs" if cluster.security.certs is None else None


def _is_loopback(host: str) -> bool:
    """A name but localhost may be anywhere: nobody is asked."""
    host = host.strip("[]")
    return host == "localhost" or (_is_ip(host) and ipaddress.ip_address(host).is_loopback)


def _wrong_rights(cluster: "Cluster") -> Iterator[str]:
    security = cluster.security
    for right in ("send", "receive"):
        for groups in getattr(security, right).values():
            yield from (
                f"[security] {right}: there is no group {bounded(group)!r}"
                for group in groups
                if group not in cluster.groups and not cluster.changes  # it may be created later
            )
    if security.tokens_file is None and security.tokens_env is None:  # otherwise only a site reads the names
        yield from nobodys_rights(security, security.tokens)


def nobodys_rights(security: "Security", tokens: dict[str, str]) -> Iterator[str]:
    """Yield the rules that are for clients who have no token."""
    names = set(tokens.values()) or {"anyone"}
    for right in ("send", "receive"):
        for client in getattr(security, right):
            if client not in names:
                known = ", ".join(sorted(names))
                yield f"[security] {right}: no token is for client {bounded(client)!r} (clients: {known})"
    for client in security.admin:
        if client not in names:
            yield f"[security] admin: no token is for client {bounded(client)!r} (clients: {', '.join(sorted(names))})"
