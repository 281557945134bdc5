"""How fast logs of others are imported, and that memory does not grow with them.

Run: python -m benchmarks.imports
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.results import record, table

SITES, GROUPS = 10, 5
MAPPING = """
format = "jsonl"
[message]
msg_id = {{ fields = ["source", "n"] }}
group = {{ field = "subject", match = '^orders\\.(.+)$' }}
source = "source"
source_seq = "n"
body = "body"
[deliveries]
files = "received.jsonl"
site = "host"
{sends}
[groups]
"""
CHILD = """
import resource, sys
from pathlib import Path
from ordercast.imports.run import import_logs
import_logs(Path(sys.argv[1]), Path(sys.argv[2]))
used = resource.getrusage(resource.RUSAGE_SELF)
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(used.ru_utime + used.ru_stime, peak // 1024)
"""


def write(folder: Path, deliveries: int, *, derived: bool) -> Path:
    """Write a log of so many lines, of about 130 bytes, and the mapping for it."""
    messages = deliveries // SITES
    with (folder / "received.jsonl").open("w") as received, (folder / "sent.jsonl").open("w") as sent:
        for number in range(messages):
            group = f"orders.g{number % GROUPS}"
            row = {"subject": group, "source": f"service-{number % 7}", "n": number, "body": f"order {number} of some"}
            sent.write(json.dumps(row) + "\n")
            for site in range(SITES):
                received.write(json.dumps({"host": f"host-{site:02d}", "time": number * 1e-3, **row}) + "\n")
    text = MAPPING.format(sends='[sends]\nfiles = "sent.jsonl"' if not derived else "")
    everybody = json.dumps([f"host-{site:02d}" for site in range(SITES)])
    text += "".join(f"g{group} = {everybody}\n" for group in range(GROUPS))
    (folder / "mapping.toml").write_text('sends = "from deliveries"\n' * derived + text)
    return folder / "mapping.toml"


def measure(deliveries: int, *, derived: bool) -> tuple[float, int, int]:
    """Import so many deliveries in a process of its own; returns CPU seconds, peak MiB, and MiB of the log."""
    with tempfile.TemporaryDirectory() as name:
        mapping = write(Path(name), deliveries, derived=derived)
        command = [sys.executable, "-c", CHILD, str(mapping), str(Path(name) / "run")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        cpu, peak = done.stdout.split()
        return float(cpu), int(peak), (Path(name) / "received.jsonl").stat().st_size // 2**20


def main() -> None:
    rows: list[list[object]] = []
    for deliveries, derived in ((100_000, False), (1_000_000, False), (4_000_000, False), (4_000_000, True)):
        cpu, peak, size = measure(deliveries, derived=derived)
        how = "from deliveries" if derived else "recorded"
        rows.append([f"{deliveries:,}", size, how, f"{cpu:.1f}", f"{deliveries / cpu:,.0f}", peak])
        print(rows[-1], flush=True)
    head = ["deliveries", "MiB of JSON lines", "sends", "CPU s", "deliveries/s of CPU", "peak MiB"]
    record("Import: logs of others", "python -m benchmarks.imports", table(head, rows))


if __name__ == "__main__":
    main()
