"""What an application loads when it connects."""

import subprocess
import sys

CODE = """
import sys, ordercast
ordercast.connect, ordercast.Client, ordercast.Delivered, ordercast.Receipt, ordercast.LostError
import ordercast.client.sync
print(*sorted(name for name in sys.modules if name.startswith("ordercast")))
print(*[name for name in ("sqlite3", "cryptography", "numpy", "pickle") if name in sys.modules])
"""
ALLOWED = {"client", "wire", "names", "errors"}


def test_a_client_loads_no_server_code() -> None:
    """Issue 12.6: no site, node, protocol, core, plan or history comes with `ordercast.connect`."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    ours, heavy = done.stdout.splitlines()
    loaded = {name.split(".")[1] for name in ours.split() if "." in name}

    assert loaded == ALLOWED
    assert "ordercast.wire.codec" not in ours.split()
    assert heavy == ""


def test_every_call_has_a_twin_without_await() -> None:
    from ordercast.client.client import Client
    from ordercast.client.sync import SyncClient

    inside = {"joined"}  # what iterators over a client ask it
    calls = {name for name in dir(Client) if not name.startswith("_")} - inside

    assert calls - set(dir(SyncClient)) == set()
