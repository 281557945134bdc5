"""A site that is added to a cluster that runs: it learns who is there, and asks to be one of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordercast.errors import InputError

if TYPE_CHECKING:
    from ordercast.live.config import Cluster


async def joined(
    name: str,
    join: str,
    address: str,
    clients: str | None,
    data: Path,
    certs: Path | None,
    export: Path | None,
    token: str | None,
    seconds: float,
) -> "Cluster":
    """Ask the cluster for its configuration, and to add this site if it is new; returns what to run it with."""
    import asyncio

    from ordercast.client.client import connect
    from ordercast.live.changing import where

    async with connect(join, token, seconds, ca=None if certs is None else certs / "ca.pem") as client:
        async with asyncio.timeout(seconds):
            known = await client.configuration()
            if not known["number"]:
                raise InputError(f"{join}: the cluster has not begun yet; not all its sites are there")
            here = known["sites"].get(name)
            mine = where(address, clients or "")
            if here is None or where(here["sites"], here["clients"]) != mine:
                await client.change("add", "", (name,), {"address": mine})
    return _cluster(name, address, clients, data, certs, export, known)


def _cluster(
    name: str,
    address: str,
    clients: str | None,
    data: Path,
    certs: Path | None,
    export: Path | None,
    known: dict[str, Any],
) -> "Cluster":
    from ordercast.live.config import Cluster, Security

    sites = {other: at["sites"] for other, at in known["sites"].items()} | {name: address}
    groups = {group: list(told["members"]) for group, told in known["groups"].items()}
    return Cluster(
        sites=sites, groups=groups, name=known["cluster"], clients={name: clients} if clients else {},
        policy="available", suspect_after=known["suspect_after"], states=known["states"], causal=known["causal"],
        data=str(data.resolve()), export=None if export is None else str(export.resolve()),
        security=Security(certs=None if certs is None else str(certs.resolve())),
    )  # fmt: skip
