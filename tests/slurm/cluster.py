"""A Slurm of two nodes on this host, from Debian's packages, without an installation and without root.

    with Slurm(folder) as slurm: slurm.run("sinfo")

The packages are downloaded once and unpacked into `.slurm/` in the repository. All daemons run as the present user, so
that only this user can submit jobs.
"""

import contextlib
import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.paths import ROOT

PACKAGES = "slurmctld slurmd slurm-client slurm-wlm-basic-plugins libslurm38 libmunge2 libhwloc15 liblua5.1-0".split()
CACHE = ROOT / ".slurm"
NODES = ("n1", "n2")
COMMANDS = ("sbatch", "srun", "scontrol", "scancel", "squeue", "sinfo")
CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
PluginDir={plugins}
StateSaveLocation={state}/controller
SlurmdSpoolDir={state}/%n
SlurmctldPidFile={state}/controller.pid
SlurmdPidFile={state}/%n.pid
SlurmctldLogFile={state}/controller.log
SlurmdLogFile={state}/%n.log
SlurmdParameters=config_overrides
SlurmdTimeout=10
KillWait=5
ReturnToService=2
JobRequeue=1
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def unpack():
    """Download and unpack the packages once; return their folder."""
    made = CACHE / "usr"
    if not (made / "done").exists():
        CACHE.mkdir(exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=CACHE, check=True, capture_output=True)
        for package in CACHE.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, CACHE], check=True)
            package.unlink()
        (made / "done").touch()
    return made


def free_ports(count):
    """Ports of this host that nobody uses."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Slurm:
    """A running cluster; `bin` has its commands, and `environment` finds them."""

    def __init__(self, folder):
        self.usr, self.state = unpack(), Path(folder) / "slurm"
        (plugins,) = self.usr.glob("lib/*/slurm-wlm")
        self.libraries = f"{plugins}:{plugins.parent}"
        self.conf, self.bin = self.state / "slurm.conf", self.state / "bin"
        for path in (self.state / "controller", self.bin, *(self.state / node for node in NODES)):
            path.mkdir(parents=True, exist_ok=True)
        host = socket.gethostname().partition(".")[0]
        settings = {"host": host, "user": getpass.getuser(), "plugins": plugins, "state": self.state}
        self.conf.write_text(CONF.format(ports=free_ports(3), **settings))
        for name in COMMANDS:
            self._wrap(name)
        self.daemons = {}

    def _wrap(self, name):
        path = self.bin / name
        words = [f"SLURM_CONF={self.conf}", f"LD_LIBRARY_PATH={self.libraries}", str(self.usr / "bin" / name)]
        path.write_text(f'#!/bin/sh\nexec env {shlex.join(words)} "$@"\n')
        path.chmod(0o755)

    @property
    def environment(self):
        """Environment of a user of this cluster."""
        path = os.pathsep.join([str(self.bin), os.environ["PATH"]])
        return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}

    def _start(self, name, *words):
        environment = {**os.environ, "SLURM_CONF": str(self.conf), "LD_LIBRARY_PATH": self.libraries}
        with (self.state / f"{name}.out").open("a") as file:
            self.daemons[name] = subprocess.Popen(
                [self.usr / "sbin" / words[0], "-D", *words[1:]],
                stdout=file,
                stderr=file,
                env=environment,
                start_new_session=True,
            )

    def start_node(self, node):
        self._start(node, "slurmd-wlm", "-N", node, "-d", str(self.usr / "sbin" / "slurmstepd-wlm"))

    def kill_node(self, node):
        """Kill the daemon of a node and all that it runs, as if the machine had lost its power."""
        self.daemons.pop(node).kill()
        for step in steps_of(self.state / node):
            for pid in [step, *children(step)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def __enter__(self):
        self._start("controller", "slurmctld-wlm")
        for node in NODES:
            self.start_node(node)
        self.wait_for_nodes()
        return self

    def __exit__(self, *error):
        with contextlib.suppress(subprocess.SubprocessError):
            self.run("scancel", "--signal=KILL", "--full", "--user", getpass.getuser())
        for node in NODES:
            if node in self.daemons:
                self.kill_node(node)
        for daemon in self.daemons.values():
            daemon.terminate()
            daemon.wait(20)

    def run(self, *words, **options):
        """Output of a command of the cluster."""
        done = subprocess.run(
            list(map(str, words)), env=self.environment, capture_output=True, text=True, timeout=60, **options
        )
        if done.returncode:
            raise subprocess.SubprocessError(f"{shlex.join(map(str, words))}: {done.stdout}{done.stderr}")
        return done.stdout

    def wait_for_nodes(self, seconds=60):
        wait_until(lambda: self.run("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle", "idle"], seconds)

    def job(self, number):
        """Facts about a job, as `scontrol show job` prints them."""
        text = self.run("scontrol", "--oneliner", "show", "job", number)
        return dict(word.partition("=")[::2] for word in text.split())


def wait_until(holds, seconds, every=0.25):
    """Wait until a condition holds; return its value."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, f"still not after {seconds} s"
        time.sleep(every)
    return found


def parents():
    """Parent of every process of this host."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return found


def children(pid):
    """All descendants of a process."""
    above = parents()
    found = [one for one, parent in above.items() if parent == pid]
    return [*found, *(inner for one in found for inner in children(one))]


def steps_of(spool):
    """Processes slurmstepd of a node, by the spool folder that their sockets lie in."""
    return []
