"""The parser: every command in one place, errors as one line, exit codes 0 fine, 1 violated or failed, 2 usage."""

import io
import os
import sys

from cyclopts import App, CycloptsError

from ordercast import __version__
from ordercast.cli.audit import audit
from ordercast.cli.backup import backup, restore
from ordercast.cli.demo import demo
from ordercast.cli.doctor import doctor
from ordercast.cli.experiment import experiment
from ordercast.cli.explore import explore
from ordercast.cli.imports import import_
from ordercast.cli.judge import judge
from ordercast.cli.live import bench, certs, up
from ordercast.cli.operate import apply, group, site
from ordercast.cli.plan import plan
from ordercast.cli.simulate import simulate
from ordercast.cli.talk import explain, send, status, tail
from ordercast.errors import InputError, OrdercastError

app = App(
    name="ordercast",
    help="Totally ordered multicast to overlapping groups: planned, run live, proven from the logs.",
    version=__version__,
    help_format="plaintext",
    default_parameter=None,
)
app.register_install_completion_command()
LIVE = (up, site, send, tail, group, apply, status, explain, doctor, backup, restore, certs, bench)
for command in (demo, plan, judge, simulate, explore, experiment, audit, *LIVE):
    app.command(command)
app.command(import_, name="import")


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; never a traceback for what a user or a file did wrong."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name the terminal cannot show is no reason to fail
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return int(code or 0)
    except CycloptsError as error:
        return _complain(" ".join(str(error).split()), 2)
    except InputError as error:
        return _complain(str(error), 2)
    except OrdercastError as error:
        return _complain(str(error), 1)
    except BrokenPipeError:  # the reader (`| head`) has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _complain(f"cannot write the output: {error.strerror}", 1)
    except KeyboardInterrupt:
        return _complain("stopped", 130)


def _complain(message: str, code: int) -> int:
    line = message.replace("\n", " ")
    print(f"ordercast: {line}", file=sys.stderr)
    return code
