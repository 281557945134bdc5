"""Collaborative text: everybody types at once, every document is a group of its readers, all copies end up the same.

Run: python examples/text.py
"""

import asyncio
import json
import random
import sys
from contextlib import AsyncExitStack

from ordercast import Cluster, Site

DOCUMENTS = {"minutes": ["ann", "bob", "cyd"], "budget": ["bob", "cyd", "dan"]}
PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 7730
EDITS = 40


class Editor:
    """A person with copies of documents; edits take effect when they come back in the common order."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.texts = dict.fromkeys(site.groups, "")
        self.seen = dict.fromkeys(site.groups, 0)

    async def read(self) -> None:
        """Apply everybody's edits as they come."""
        async for message in self.site.inbox(after=-1):
            edit = json.loads(message.body)
            text = self.texts[message.group]
            at = min(edit["at"], len(text))
            self.texts[message.group] = text[:at] + edit["insert"] + text[at + edit["delete"] :]
            self.seen[message.group] += 1

    async def type(self, chance: random.Random) -> None:
        """Insert and delete at random places."""
        for _ in range(EDITS):
            document = chance.choice(sorted(self.site.groups))
            at = chance.randrange(len(self.texts[document]) + 1)
            edit = {"at": at, "insert": chance.choice(["tea ", "and ", "so "]), "delete": chance.choice([0, 0, 1])}
            await self.site.multicast(document, json.dumps(edit).encode(), ack="ordered")


async def main() -> None:
    """Four people, two documents."""
    people = sorted({person for readers in DOCUMENTS.values() for person in readers})
    sites = {name: f"127.0.0.1:{PORT + index}" for index, name in enumerate(people)}
    async with AsyncExitStack() as stack:
        cluster = Cluster(sites=sites, groups=DOCUMENTS, durable=False)
        editors = [Editor(await stack.enter_async_context(Site(cluster, name))) for name in people]
        reading = [asyncio.create_task(editor.read()) for editor in editors]
        await asyncio.gather(*(editor.type(random.Random(i)) for i, editor in enumerate(editors)))
        while sum(e.seen[d] for d in DOCUMENTS for e in editors if d in e.seen) < 3 * EDITS * len(editors):
            await asyncio.sleep(0.01)
        for task in reading:
            task.cancel()
        for document in DOCUMENTS:
            copies = {editor.texts[document] for editor in editors if document in editor.texts}
            print(f"{document}: {len(copies)} version, {len(next(iter(copies)))} signs")
            assert len(copies) == 1


asyncio.run(main())
