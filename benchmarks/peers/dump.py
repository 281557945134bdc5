"""What senders and receivers of another system say of a run, as JSON lines, and the mapping that imports it."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ordercast.bench.live import Workload
from ordercast.wire import batch as batches

KINDS = {
    "redis pub/sub": ("redis-pubsub", "redis", "channel", ""),
    "redis pub/sub, two servers": ("redis-two", "redis", "channel", ""),
    "redis streams": ("redis-streams", "redis", "stream", ""),
    "nats memory": ("nats", "nats", "subject", "w."),
}
"""The folder, the format that reads it, what such a system calls a group, and what stands before a group's name."""

MAPPING = """# What {kind} delivered, as the receivers of benchmarks/peers wrote it down (docs/import.md).
format = "{format}"

[message]
msg_id = {{ fields = ["source", "n"] }}
group = {group}
source = "source"
source_seq = "n"

[deliveries]
files = "received/*.jsonl"
site = {{ field = "@file", match = '([^/]+)\\.jsonl$' }}

[sends]
files = "sent/*.jsonl"

[groups]
{groups}"""


def begin(folder: Path, kind: str, workload: Workload) -> Path:
    """Make the folder of one system's run, with its mapping."""
    name, form, field, before = KINDS[kind]
    here = folder / name
    for part in ("sent", "received"):
        (here / part).mkdir(parents=True, exist_ok=True)
        for old in (here / part).glob("*.jsonl"):
            old.unlink()
    group = (
        f"{{ field = \"{field}\", match = '^{before.replace('.', chr(92) + '.')}(.+)$' }}" if before else f'"{field}"'
    )
    groups = "".join(f"{name} = {json.dumps(members)}\n" for name, members in workload.groups.items())
    text = MAPPING.format(kind=kind, format=form, group=group, groups=groups)
    (here / "mapping.toml").write_text(text)
    return here


def _line(task: dict[str, Any], group: str, source: int, number: int) -> str:
    _, _, field, before = KINDS[task["kind"]]
    return json.dumps({field: before + group, "source": f"sender-{source}", "n": number}) + "\n"


def sent(task: dict[str, Any], entries: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Pass on what a sender sends and, if the run is to be dumped, write it down message by message."""
    if not task["dump"]:
        yield from entries
        return
    with (Path(task["dump"]) / "sent" / f"sender-{task['index']}.jsonl").open("w") as file:
        for group, data in entries:
            first, many = batches.read_head(data[1:])
            file.writelines(_line(task, group, data[0], number) for number in range(first, first + many))
            yield group, data


def received(task: dict[str, Any], messages: Iterable[tuple[int, int, int]]) -> None:
    """Write what a receiver got: source, group and number of each message, in its order."""
    if task["dump"]:
        with (Path(task["dump"]) / "received" / f"{task['site']}.jsonl").open("w") as file:
            for source, group, number in messages:
                file.write(_line(task, task["names"][group], source, number))
