"""Train on several hosts, and let hosts and links fail: the losses must equal those of one process.

A host is a network namespace of this machine with its own address and host name; a bridge in another namespace connects
the hosts. Nothing else can be reached from them. Each scenario starts torchrun on two or three hosts, waits for a step,
and then kills or freezes processes, cuts links, or stops and resumes the run. Then the losses of all steps are compared
with those of an uninterrupted run in a single process. Each plain scenario uses DDP, each sharded one FSDP2.

  python -m tests.campaigns.hosts
  python -m tests.campaigns.hosts --only "link cut" --jobs 1 --keep /tmp/hosts

This needs Linux, root, and the command `ip` (Debian package iproute2).

Exit code: 0 if every scenario ends as it must, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import glassformer
from tests.property.trainers import text_file

ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2", "c": "10.77.0.3"}
"""Address of each host. torchrun numbers the hosts by address, so rank 0 is on the first host that takes part."""
STEPS = 40
SETTINGS = {
    "model.layers": 2,
    "model.width": 96,
    "model.heads": 2,
    "model.context": 64,
    "tokenizer.kind": "characters",
    "train.batch": 24,
    "train.steps": STEPS,
    "model.dropout_embedding": 0.0,
    "model.dropout_attention": 0.0,
    "model.dropout_residual": 0.0,
    "train.optimizer": "adamw",
    "train.learning_rate": 1e-4,
    "train.schedule": "constant",
    "train.save_every": 5,
    "train.evaluate_every": 20,
    "train.log_every": 1,
    "train.precision": "fp32",
    "sample.tokens": 4,
}
LIMIT = 60.0
"""Seconds within which a lost host must be noticed."""
TOLERANCE = 1e-6
"""Largest allowed difference of the losses from those of a single process."""
PATIENCE = 420.0
"""Seconds to wait for an event before the scenario counts as failed."""
NOTICED = re.compile(r"(rank .* not answered|the store at .* not answered|another process of this run).*\n.*--resume")


class ScenarioError(Exception):
    """A scenario did not end as it must."""


def run(*words: str) -> str:
    """Run a command, and return its output; raise an error if it fails."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Cluster:
    """Hosts that are connected by a bridge; every torchrun command of one scenario runs on them.

    Args:
        folder: folder that all hosts share.
        sharded: whether the scenario trains with `--shard`.
    """

    def __init__(self, folder: Path, sharded: bool) -> None:
        self.folder = folder
        self.sharded = sharded
        self.noticed: float | None = None
        self.message = ""
        self.heard = dict.fromkeys(ADDRESSES, 0)  # length of each host's output before the last failure
        self._name = f"glass{os.getpid()}-{threading.get_ident() % 10**6}"
        self._began: dict[str, subprocess.Popen[bytes]] = {}
        self.job = "first"

    def __enter__(self) -> Cluster:
        lines = ["127.0.0.1 localhost", *(f"{address} {host}" for host, address in ADDRESSES.items())]
        (self.folder / "hosts").write_text("\n".join([*lines, ""]), encoding="utf-8")
        run("ip", "netns", "add", f"{self._name}-switch")
        self._switch("link", "add", "name", "bridge", "type", "bridge")
        self._switch("link", "set", "dev", "bridge", "up")
        for host, address in ADDRESSES.items():
            run("ip", "netns", "add", f"{self._name}-{host}")
            own = ("ip", "-n", f"{self._name}-{host}")
            self._switch(
                "link", "add", "name", host, "type", "veth", "peer", "name", "eth0", "netns", f"{self._name}-{host}"
            )
            self._switch("link", "set", "dev", host, "up", "master", "bridge")
            run(*own, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                run(*own, "link", "set", "dev", device, "up")
        return self

    def __exit__(self, *exception: object) -> None:
        for host in ADDRESSES:
            self.signal(host, signal.SIGKILL)
        for process in self._began.values():
            process.wait()
        for name in (*ADDRESSES, "switch"):
            run("ip", "netns", "delete", f"{self._name}-{name}")

    def _switch(self, *words: str) -> None:
        run("ip", "-n", f"{self._name}-switch", *words)

    # --- what happens ---------------------------------------------------------------------------------------------

    def start(
        self,
        hosts: str = "abc",
        words: Sequence[str] = (),
        nodes: str = "1:3",
        restarts: int = 3,
        endpoint: str = "a",
        environment: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        """Start torchrun on hosts.

        Args:
            hosts: names of the hosts.
            words: arguments of `glass train`; without them, those of `train`.
            nodes, restarts, endpoint: values of the options `--nnodes`, `--max-restarts` and `--rdzv-endpoint`.
            environment: further variables of the environment.
            stdin: standard input.
        """
        for host in hosts:
            command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", f"--nnodes={nodes}"]
            command += ["--rdzv-backend=c10d", f"--rdzv-id={self.job}", f"--rdzv-endpoint={ADDRESSES[endpoint]}:29400"]
            command += ["--rdzv-conf=last_call_timeout=15", f"--local-addr={ADDRESSES[host]}"]
            command += [f"--max-restarts={restarts}", "-m", "glassformer", "train", *(words or self.train())]
            variables = {"GLOO_SOCKET_IFNAME": "eth0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
            as_host = ["ip", "netns", "exec", f"{self._name}-{host}", "unshare", "--mount", "--uts", "sh", "-c"]
            script = f'mount --bind hosts /etc/hosts && hostname {host} && exec "$@"'
            with self._log(host).open("ab") as log:
                self._began[host] = subprocess.Popen(
                    [*as_host, script, "sh", *command],
                    cwd=self.folder,
                    env=os.environ | variables | (environment or {}),
                    stdin=stdin,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

    def train(self, source: str = "text.txt", **changes: Any) -> list[str]:
        """Return the arguments of `glass train` for a new run, with changes to its settings (`__` for a dot)."""
        settings = SETTINGS | {name.replace("__", "."): value for name, value in changes.items()}
        pairs = [f"--{name}={value}" for name, value in settings.items()]
        return [source, "--out", "run", *pairs, *(["--shard"] if self.sharded else [])]

    def link(self, host: str, state: str) -> None:
        """Set the link of a host `up` or `down`."""
        self._switch("link", "set", "dev", host, state)

    def drop(self, host: str) -> None:
        """Let the bridge drop all packets from and to a host, whose link stays up."""
        run("ip", "netns", "exec", f"{self._name}-switch", "bridge", "link", "set", "dev", host, "state", "0")

    def signal(self, host: str, number: int) -> None:
        """Send a signal to all processes of a host."""
        for pid in self._pids(host):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def interrupt(self, host: str) -> None:
        """Stop torchrun on a host, as Ctrl-C does."""
        self._began[host].send_signal(signal.SIGINT)

    def signal_worker(self, host: str, number: int) -> None:
        """Send a signal to the process of `glass train` on a host, not to torchrun."""
        (pid,) = [pid for pid in self._pids(host) if b"RANK=" in Path(f"/proc/{pid}/environ").read_bytes()]
        os.kill(pid, number)

    def _pids(self, host: str) -> list[int]:
        return [int(pid) for pid in run("ip", "netns", "pids", f"{self._name}-{host}").split()]

    # --- what must follow -----------------------------------------------------------------------------------------

    def await_step(self, step: int) -> None:
        """Wait until a step is logged."""
        self._await(f"step {step}", lambda: any(line["step"] >= step for line in self.metrics()))

    def await_processes(self, count: int) -> None:
        """Wait until the run is trained by this number of processes."""
        self._await(f"a leg with {count} processes", lambda: self.processes().endswith(f"→ {count}"))

    def await_notice(self, hosts: str, began: float) -> None:
        """Wait until all of these hosts have said in two lines that a process is lost, which must be within `LIMIT`."""
        for host in hosts:
            self._await(f"a message on {host}", lambda host=host: NOTICED.search(self.said(host), self.heard[host]))
            self.message = self.message or NOTICED.search(self.said(host))[0].splitlines()[0]  # type: ignore[index]
        self.noticed = time.monotonic() - began
        if self.noticed > LIMIT:
            raise ScenarioError(f"noticed after {self.noticed:.0f} s")

    def await_end(self, hosts: str, code: int | None = 0) -> None:
        """Wait until torchrun has ended on these hosts, with this exit code (None: any but 0)."""
        for host in hosts:
            found = self._await(f"the end of {host}", lambda host=host: self._began[host].poll() is not None)
            found = self._began[host].returncode
            if found != code if code is not None else found == 0:
                raise ScenarioError(f"torchrun on {host} ended with {found}: {self.said(host)[-600:]}")

    def _await(self, event: str, happened: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not happened():
            if time.monotonic() > deadline:
                raise ScenarioError(f"{event} did not come within {PATIENCE:.0f} s")
            time.sleep(0.05)

    def refuse_notices(self) -> None:
        """Raise an error if a host took another one for lost."""
        for host in self._began:
            if found := NOTICED.search(self.said(host)):
                raise ScenarioError(f"{host} said: {found[0]}")

    def _log(self, host: str) -> Path:
        return self.folder / f"{host}.log"

    def said(self, host: str) -> str:
        """Return the output of all commands on a host."""
        return self._log(host).read_text(encoding="utf-8", errors="replace")

    def metrics(self) -> list[dict[str, Any]]:
        """Return the complete lines of the run's log."""
        path = self.folder / "run" / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def processes(self) -> str:
        """Return the number of processes of each leg of the run."""
        manifest = json.loads((self.folder / "run" / "manifest.json").read_text(encoding="utf-8"))
        return " → ".join(str(leg["processes"]) for leg in manifest["legs"])


Scenario = Callable[[Cluster], None]


def undisturbed(cluster: Cluster) -> None:
    """Nothing fails."""
    cluster.start()
    cluster.await_end("abc")


def killed_process(cluster: Cluster, host: str) -> None:
    """The training process of a host is killed; torchrun on that host lives."""
    cluster.start()
    cluster.await_step(7)
    cluster.signal_worker(host, signal.SIGKILL)
    cluster.await_end("abc")


def lost(cluster: Cluster, how: str, host: str = "c", endpoint: str = "a") -> None:
    """A host fails for good; the others must notice it, and go on without it."""
    cluster.start(endpoint=endpoint)
    cluster.await_step(7)
    began = fail(cluster, how, host)
    others = "abc".replace(host, "")
    cluster.await_notice(others, began)
    cluster.await_end(others)
    if how == "is frozen":  # it continues after the others have ended, and must not write anything
        before = cluster.metrics()
        cluster.signal(host, signal.SIGCONT)
        cluster.await_end(host, None)
        if cluster.metrics() != before:
            raise ScenarioError("the frozen host wrote metrics")


def fail(cluster: Cluster, how: str, host: str) -> float:
    """Let a host fail; return the time."""
    cluster.heard = {each: len(cluster.said(each)) for each in ADDRESSES}
    if how in ("link cut", "power lost"):
        cluster.link(host, "down")
    if how in ("is killed", "power lost"):
        cluster.signal(host, signal.SIGKILL)
    if how == "packets dropped":
        cluster.drop(host)
    if how == "is frozen":
        cluster.signal(host, signal.SIGSTOP)
    return time.monotonic()


def interrupted(cluster: Cluster, how: str, seconds: float) -> None:
    """A host fails for a short time; the run must go on as if nothing had happened."""
    cluster.start()
    cluster.await_step(7)
    fail(cluster, how, "c")
    time.sleep(seconds)
    cluster.link("c", "up") if how == "link cut" else cluster.signal("c", signal.SIGCONT)
    cluster.await_end("abc")
    cluster.refuse_notices()


def returned(cluster: Cluster) -> None:
    """A host is cut off until the others give it up, and joins again after its link is restored."""
    cluster.start()
    cluster.await_step(7)
    cluster.await_notice("ab", fail(cluster, "link cut", "c"))
    cluster.link("c", "up")
    cluster.await_processes(3)
    cluster.await_end("abc")


def replaced(cluster: Cluster) -> None:
    """A host loses its power, and torchrun is started on it again while the others train."""
    cluster.start(words=cluster.train(train__steps=5 * STEPS))
    cluster.await_step(7)
    cluster.await_notice("ab", fail(cluster, "power lost", "c"))
    cluster.link("c", "up")
    cluster.start("c", cluster.train(train__steps=5 * STEPS))
    cluster.await_processes(3)
    cluster.await_end("abc")


def one_by_one(cluster: Cluster) -> None:
    """First one host, then a second loses its power: 3 → 2 → 1 processes."""
    cluster.start()
    for step, host, others in ((7, "c", "ab"), (22, "b", "a")):
        cluster.await_step(step)
        cluster.await_notice(others, fail(cluster, "power lost", host))
    cluster.await_end("a")


def resumed(cluster: Cluster) -> None:
    """The run is stopped twice by SIGINT, and resumed on fewer hosts: 3 → 2 → 1 processes."""
    cluster.start()
    for step, hosts, rest in ((7, "abc", "ab"), (22, "ab", "a")):
        cluster.await_step(step)
        for host in hosts:
            cluster.interrupt(host)
        cluster.await_end(hosts, None)
        cluster.job = f"resumed on {rest}"
        cluster.start(rest, ["--resume", "--out", "run"], nodes=str(len(rest)))
    cluster.await_end("a")


def without_restarts(cluster: Cluster, host: str) -> None:
    """Without --max-restarts, all other hosts print a message; the run is then resumed by hand on one of them."""
    cluster.start(restarts=0)
    cluster.await_step(7)
    others = "abc".replace(host, "")
    cluster.await_notice(others, fail(cluster, "link cut", host))
    if host != "a":
        cluster.await_end(others, None)
    for each in "abc":  # without the host of its rendezvous, torchrun waits for TCP
        cluster.signal(each, signal.SIGKILL)
    cluster.job = "by hand"
    cluster.start(others[0], ["--resume", "--out", "run"], nodes="1", endpoint=others[0])
    cluster.await_end(others[0])


def busy(cluster: Cluster) -> None:
    """Rank 0 reads the text for longer than the limit for lost hosts, while the others wait: this is not a failure."""
    with subprocess.Popen(["sh", "-c", "sleep 70; cat text.txt"], cwd=cluster.folder, stdout=subprocess.PIPE) as text:
        assert text.stdout is not None
        cluster.start("a", cluster.train("-"), stdin=text.stdout.fileno())
        cluster.start("bc", cluster.train("-"))
    cluster.await_end("abc")
    cluster.refuse_notices()


def refused(cluster: Cluster, difference: str, other_code: bool = False, **changes: Any) -> None:
    """The processes differ, which must be refused in two lines that name the difference and the ranks."""
    environment = {}
    if other_code:
        shutil.copytree(Path(glassformer.__file__).parent, cluster.folder / "src" / "glassformer")
        with (cluster.folder / "src" / "glassformer" / "model" / "attention.py").open("a") as file:
            file.write("# changed\n")
        environment["PYTHONPATH"] = str(cluster.folder / "src")
    cluster.start("a", nodes="2", restarts=0)
    cluster.start("b", cluster.train(**changes), nodes="2", restarts=0, environment=environment)
    cluster.await_end("ab", None)
    found = re.search(rf"the processes of this run differ: {difference}.*\nGive the same options", cluster.said("a"))
    if found is None or cluster.metrics():
        raise ScenarioError(cluster.said("a")[-600:])
    cluster.message = found[0].splitlines()[0]


SCENARIOS: dict[str, Scenario] = {
    "nothing fails": undisturbed,
    "process of rank 0 killed": partial(killed_process, host="a"),
    "process of rank 1 killed": partial(killed_process, host="b"),
    "host killed": partial(lost, how="is killed"),
    "host loses its power": partial(lost, how="power lost"),
    "host loses its power, then another": one_by_one,
    "host loses its power, and is started again": replaced,
    "host of rank 0 loses its power": partial(lost, how="power lost", host="a", endpoint="c"),
    "link cut": partial(lost, how="link cut"),
    "link cut, and restored after 15 s": partial(interrupted, how="link cut", seconds=15),
    "link cut, and restored when the host is given up": returned,
    "link cut, without --max-restarts": partial(without_restarts, host="c"),
    "link of rank 0 cut, without --max-restarts": partial(without_restarts, host="a"),
    "packets dropped": partial(lost, how="packets dropped"),
    "host frozen": partial(lost, how="is frozen"),
    "host frozen for 15 s": partial(interrupted, how="is frozen", seconds=15),
    "all stopped, resumed on 2 hosts, then on 1": resumed,
    "rank 0 reads the text for over a minute": busy,
    "other width on a host": partial(
        refused, difference=r"model.width is 96 \(rank 0\), 64 \(rank 1\)", model__width=64
    ),
    "other text on a host": partial(
        refused, difference=r"data.source is text.txt \(rank 0\), other.txt \(rank 1\)", source="other.txt"
    ),
    "other code on a host": partial(refused, difference="the code of glassformer is", other_code=True),
}
ONLY_PLAIN = {"rank 0 reads the text for over a minute", *(name for name in SCENARIOS if name.startswith("other"))}


@dataclass
class Outcome:
    """What a scenario showed.

    Attributes:
        scenario, kind: name of the scenario, and `plain` or `sharded`.
        problem: what was wrong; None: the scenario ended as it must.
        processes: number of processes of each leg.
        noticed: seconds until the last of the other hosts noticed a loss.
        difference: largest difference of a loss from that of a single process.
        message: first line of the error.
        seconds: duration of the scenario.
    """

    scenario: str
    kind: str
    problem: str | None = None
    processes: str = ""
    noticed: float | None = None
    difference: float | None = None
    message: str = ""
    seconds: float = 0.0


def try_scenario(name: str, kind: str, folder: Path, straight: Sequence[dict[str, Any]]) -> Outcome:
    """Run one scenario in a new folder."""
    began = time.monotonic()
    outcome = Outcome(name, kind)
    folder.mkdir()
    shutil.copyfile(folder.parent / "text.txt", folder / "text.txt")
    with Cluster(folder, kind == "sharded") as cluster:
        try:
            SCENARIOS[name](cluster)
            if not name.startswith("other"):
                outcome.processes = cluster.processes()
                outcome.difference = largest_difference(cluster.metrics(), straight)
        except ScenarioError as error:
            outcome.problem = str(error)
        outcome.noticed = cluster.noticed
        outcome.message = cluster.message
    outcome.seconds = time.monotonic() - began
    print(line(outcome), file=sys.stderr, flush=True)
    return outcome


def largest_difference(found: Sequence[dict[str, Any]], straight: Sequence[dict[str, Any]]) -> float:
    """Return the largest difference of the training and validation losses of all steps.

    Raises:
        ScenarioError: a step is missing or occurs twice, or the difference is larger than `TOLERANCE`.
    """
    steps = [each["step"] for each in found]
    if steps not in (list(range(1, STEPS + 1)), list(range(1, len(straight) + 1))):
        raise ScenarioError(f"the steps are {steps}")
    names = ("loss", "validation_loss")
    difference = max(abs(x[n] - y[n]) for x, y in zip(found, straight, strict=False) for n in names if n in y)
    if difference > TOLERANCE:
        raise ScenarioError(f"the losses differ by {difference:.1e}")
    return difference


def line(outcome: Outcome) -> str:
    """Return the table's line of an outcome."""
    noticed = "" if outcome.noticed is None else f"{outcome.noticed:.0f} s"
    difference = "" if outcome.difference is None else f"{outcome.difference:.0e}"
    shown = (
        outcome.scenario,
        outcome.kind,
        outcome.processes,
        noticed,
        difference,
        " ".join((outcome.problem or "ok").split())[:200],
    )
    return "| " + " | ".join(shown) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios, print their table, and return 1 if one of them failed, 0 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.hosts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="run the scenarios whose name begins with TEXT")
    parser.add_argument(
        "--kinds", metavar="KINDS", default="plain,sharded", help="plain, sharded, or both with a comma"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="scenarios at a time (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome to this file")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work here, and keep all files")
    given = parser.parse_args(arguments)
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise SystemExit("network namespaces need root and the command ip\nInstall iproute2, and run this as root.")
    os.environ |= {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    chosen = [
        (name, kind)
        for name in SCENARIOS
        for kind in given.kinds.split(",")
        if name.startswith(given.only) and (kind == "plain" or name not in ONLY_PLAIN)
    ]
    with tempfile.TemporaryDirectory(prefix="glass-hosts-") as temporary:
        home = (given.keep or Path(temporary)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        text_file(home).rename(home / "text.txt")
        alone = Cluster(home, False)
        run_in = partial(subprocess.run, cwd=home, check=True, capture_output=True)
        run_in([sys.executable, "-m", "glassformer", "train", *alone.train(train__steps=5 * STEPS)])
        straight = alone.metrics()
        with ThreadPoolExecutor(given.jobs) as pool:
            outcomes = list(
                pool.map(lambda n: try_scenario(*chosen[n], home / f"scenario-{n:02d}", straight), range(len(chosen)))
            )
    print("| scenario | kind | processes | noticed within | largest difference | result |\n|---|---|---|---|---|---|")
    print("\n".join(map(line, outcomes)))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n", encoding="utf-8")
    return 1 if any(each.problem for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
