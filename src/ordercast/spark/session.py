"""The one place that builds a Spark session: finds Java, keeps quiet, shows progress, ships the package.

Local settings, each with its reason (measured: benchmarks/RESULTS.md, "Spark: start"):
- no web page: a second less, and no port;
- the C1 compiler and one garbage collector thread: our JVM schedules and shuffles small tables, the rows are read by
  Arrow in the workers; starting is what counts;
- shuffle partitions as many as cores: tables that are shuffled are small;
- the driver listens on the loopback only.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordercast.errors import InputError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

JAVA_AT_LEAST = 17
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit: the JVM is there already
WHERE_JAVA_IS = ("/usr/lib/jvm", "/opt", "/Library/Java/JavaVirtualMachines")


def find_java() -> str:
    """Return a Java home that is new enough: JAVA_HOME, PATH, the usual places, or the one set-up installed."""
    candidates = [os.environ.get("JAVA_HOME", "")]
    if on_path := shutil.which("java"):
        candidates.append(str(Path(on_path).resolve().parent.parent))
    candidates.append(str(Path(sys.prefix).parent / ".bootstrap" / "java"))
    for folder in WHERE_JAVA_IS:
        candidates += sorted((str(path) for path in Path(folder).glob("*") if path.is_dir()), reverse=True)
    old = None
    for home in candidates:
        java = Path(home) / "bin" / "java"
        if home and java.exists():
            version = _java_version(java)
            if version >= JAVA_AT_LEAST:
                return home
            old = f"{java} is Java {version}" if version else old
    hint = f"Spark needs Java {JAVA_AT_LEAST} or newer ({old or 'found none'}): `make setup` installs it in a checkout,"
    raise InputError(f"{hint} `apt-get install openjdk-17-jre-headless` on Debian; small inputs: --local")


def _java_version(java: Path) -> int:
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        release = java.parent.parent / "release"
        text = release.read_text() if release.exists() else ""
        if "JAVA_VERSION=" not in text:
            text = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False).stderr
            return int(text.split('"')[1].split(".")[0])
        return int(text.split('JAVA_VERSION="')[1].split(".")[0])
    return 0


def package_zip(folder: Path) -> str:
    """Pack this package for executors that do not have it."""
    root = Path(__file__).parent.parent
    path = folder / "ordercast.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for source in sorted(root.rglob("*.py")):
            packed.write(source, Path("ordercast") / source.relative_to(root))
    return str(path)


class Spark:
    """A running Spark. Tables need its query engine, which takes another four seconds to start: only when asked for."""

    def __init__(self, context: "SparkContext") -> None:
        self.context = context

    @cached_property
    def sql(self) -> "SparkSession":
        """The session for DataFrames."""
        from pyspark.sql import SparkSession

        return SparkSession(self.context)


@contextmanager
def session(name: str, master: str | None = None, conf: list[str] | None = None) -> Iterator[Spark]:
    """Open a session, show how far its jobs are, and close it.

    A session that is there already, in this process, is used as it is and stays. A program that was started by
    `spark-submit` runs where, and with what, it was submitted.
    """
    settings = {}
    for setting in conf or []:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise InputError(f"--conf {setting}: give NAME=VALUE")
        settings[key] = value
    try:
        from pyspark import SparkConf
    except ImportError:
        raise InputError("Spark is not installed: pip install 'ordercast[spark]'; small inputs: --local") from None
    running = _running(master, settings)
    if running is not None:
        with progress(running):
            yield Spark(running)
        return
    if SUBMITTED in os.environ:
        submitted = SparkConf().setAll(list(settings.items()))
        with _stopped(submitted.setMaster(master) if master is not None else submitted) as context:
            yield Spark(context)
        return
    os.environ["JAVA_HOME"] = find_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    local = master is None or master.startswith("local")
    with tempfile.TemporaryDirectory(prefix="ordercast-spark-") as folder:
        quiet = _quiet(Path(folder))
        options = f"-Dlog4j2.configurationFile={quiet} -Dlog4j.configurationFile={quiet}"
        memory = settings.pop("spark.driver.memory", "2g")
        if local:
            options += " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
        extra = settings.pop("spark.driver.extraJavaOptions", "")
        arguments = f"--driver-memory {memory} --driver-java-options '{options} {extra}'"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{arguments} pyspark-shell"
        defaults = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
            "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
            "spark.driver.maxResultSize": "0",
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": str(Path(folder) / "warehouse"),
        }
        asked = SparkConf().setAppName(name).setMaster(master or "local[*]")
        context = _started(asked.setAll(list((defaults | settings).items())), Path(folder) / "jvm.log")
        try:
            if not local:
                context.addPyFile(package_zip(Path(folder)))
            with progress(context):
                yield Spark(context)
        finally:
            context.stop()


def _running(master: str | None, settings: dict[str, str]) -> "SparkContext | None":
    """Return the context of the session that this process has, if any; what it cannot be changed to is refused."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    if there is None:
        return None
    conf = there.sparkContext.getConf()
    if master is not None and master != conf.get("spark.master"):
        raise InputError(f"--master {master}: a session runs in this process already, at {conf.get('spark.master')}")
    for name, value in settings.items():
        if conf.get(name) != value:
            raise InputError(f"--conf {name}: a session runs in this process already, with {conf.get(name)!r}")
    return there.sparkContext


@contextmanager
def _stopped(asked: Any) -> "Iterator[SparkContext]":
    from pyspark import SparkContext

    context = SparkContext(conf=asked)
    try:
        with progress(context):
            yield context
    finally:
        context.stop()


def _started(asked: Any, said: Path) -> "SparkContext":
    """Start, with what the JVM and its launcher say on the way kept in a file: it is told only when they fail."""
    sys.stderr.flush()
    kept = os.dup(2)
    log = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    try:
        from pyspark import SparkContext

        return SparkContext(conf=asked)
    except Exception as error:
        last = [line for line in said.read_text(errors="replace").splitlines() if line.strip()][-1:]
        reason = " ".join((last[0] if last else str(error)).split())
        raise InputError(f"Spark did not start: {reason[:300]}") from None
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)


def _quiet(folder: Path) -> Path:
    """Write the log settings: errors only, to the error stream."""
    path = folder / "log4j2.properties"
    path.write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\nappender.stderr.name = stderr\nappender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\nappender.stderr.layout.pattern = %p %c{1}: %m%n\n"
    )
    return path


@contextmanager
def progress(context: "SparkContext") -> Iterator[None]:
    """Show a bar on a terminal while jobs run, from the status tracker."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    done = threading.Event()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("Spark", total=None)
        watcher = threading.Thread(target=_watch, args=(context, bar, task, done), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join(2)


def _watch(context: "SparkContext", bar: Any, task: Any, done: threading.Event) -> None:
    tracker = context.statusTracker()
    while not done.is_set():
        with suppress(Exception):  # the session may be gone by now
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            total = sum(stage.numTasks for stage in stages if stage)
            ready = sum(stage.numCompletedTasks for stage in stages if stage)
            if total:
                bar.update(task, total=total, completed=ready, description=f"Spark: {ready} of {total} tasks")
        time.sleep(0.2)
