"""A Slurm of two nodes on this host, from Debian's packages, without an installation and without root.

    with Slurm(folder) as slurm: slurm.run("sinfo")

The packages are downloaded once and unpacked into `.slurm/` of the repository. The daemons run as the present user, so
that only this user can submit jobs.
"""

import contextlib
import getpass
import os
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.paths import ROOT

PACKAGES = ["slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"]
PACKAGES += ["libslurm38", "libmunge2", "libhwloc15", "liblua5.1-0"]
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
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def unpack():
    """Download and unpack the packages once; return their folder."""
    made = CACHE / "usr"
    if not (made / "complete").exists():
        CACHE.mkdir(exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=CACHE, check=True, capture_output=True)
        for package in CACHE.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, CACHE], check=True)
            package.unlink()
        (made / "complete").touch()
    return made


def free_ports(count):
    """Ports of this host that nobody uses."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Slurm:
    """A running cluster; `environment` is that of a user who finds its commands."""

    def __init__(self, folder):
        self.usr, self.state = unpack(), Path(folder)
        (plugins,) = self.usr.glob("lib/*/slurm-wlm")
        self.libraries = f"{plugins}:{plugins.parent}"
        self.conf, self.bin = self.state / "slurm.conf", self.state / "bin"
        for path in (self.state / "controller", self.bin, *(self.state / node for node in NODES)):
            path.mkdir(parents=True, exist_ok=True)
        host = socket.gethostname().partition(".")[0]
        settings = {"host": host, "user": getpass.getuser(), "plugins": plugins, "state": self.state}
        self.conf.write_text(CONF.format(ports=free_ports(3), **settings))
        for name in COMMANDS:
            words = [f"SLURM_CONF={self.conf}", f"LD_LIBRARY_PATH={self.libraries}", str(self.usr / "bin" / name)]
            (self.bin / name).write_text(f'#!/bin/sh\nexec env {shlex.join(words)} "$@"\n')
            (self.bin / name).chmod(0o755)
        self.daemons = {}

    @property
    def environment(self):
        path = os.pathsep.join([str(self.bin), os.environ["PATH"]])
        return {**os.environ, "PATH": path}

    def __enter__(self):
        self._start("controller", "slurmctld-wlm")
        for node in NODES:
            self.start_node(node)
        self.wait_for_nodes()
        return self

    def __exit__(self, *error):
        with contextlib.suppress(subprocess.SubprocessError):
            self.run("scancel", "--full", "--user", getpass.getuser())
            wait_until(lambda: not self.run("squeue", "--noheader"), 20)
        for node in NODES:
            for pid in self.processes(node):
                kill(pid, signal.SIGKILL)
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            daemon.wait(20)

    def _start(self, name, *words):
        environment = {**os.environ, "SLURM_CONF": str(self.conf), "LD_LIBRARY_PATH": self.libraries}
        with (self.state / f"{name}.out").open("a") as out:
            command = [self.usr / "sbin" / words[0], "-D", *words[1:]]
            self.daemons[name] = subprocess.Popen(command, stdout=out, stderr=out, env=environment)

    def start_node(self, node):
        self._start(node, "slurmd-wlm", "-N", node, "-d", str(self.usr / "sbin" / "slurmstepd-wlm"))

    def freeze_node(self, node):
        """Stop a node as a loss of power does: its processes say nothing more, and close no connection."""
        daemon = self.daemons.pop(node)
        for pid in [daemon.pid, *self.processes(node)]:
            kill(pid, signal.SIGSTOP)
        return daemon

    def bury_node(self, node, daemon):
        """Remove the processes of a frozen node."""
        for pid in self.processes(node):
            kill(pid, signal.SIGKILL)
        daemon.kill()
        daemon.wait()

    def processes(self, node):
        """Processes of the steps on a node: slurmstepd, by its log file, and all that have its environment."""
        own, log = {f"SLURM_CONF={self.conf}", f"SLURMD_NODENAME={node}"}, str(self.state / f"{node}.log")
        daemons = {daemon.pid for daemon in self.daemons.values()}
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                known = {*(path / "environ").read_text(errors="replace").split("\0")}
                logs = f"SLURM_CONF={self.conf}" in known and any(os.readlink(one) == log for one in path.glob("fd/*"))
                if int(path.name) not in daemons and (logs or own <= known):
                    found.append(int(path.name))
        return found

    def commands(self, *begin):
        """Python processes on all nodes, by node, whose command lines begin with these words."""
        found = {}
        for node in NODES:
            for pid in self.processes(node):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if tuple(words[1 : 1 + len(begin)]) == begin:
                    found.setdefault(node, []).append((pid, words))
        return found

    def rank(self, node):
        """The only process of a training on a node."""
        ((pid, _),) = self.commands("-u", "-m", "sciformer")[node]
        return pid

    def run(self, *words):
        """Output of a command of the cluster."""
        words = [str(word) for word in words]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise subprocess.SubprocessError(f"{shlex.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def wait_for_nodes(self, seconds=60):
        wait_until(lambda: self.run("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * len(NODES), seconds)

    def job(self, number):
        """Facts about a job, as `scontrol show job` prints them."""
        text = self.run("scontrol", "--oneliner", "show", "job", number)
        return dict(word.partition("=")[::2] for word in text.split())

    def hurry(self, number):
        """Start a job again that was put back into the queue, when its nodes have done with it."""
        self.wait_for_nodes()
        time.sleep(2)  # else the nodes take it for the old one
        self.run("scontrol", "update", f"JobId={number}", "StartTime=now")

    def end_of(self, number, seconds=300):
        """State in which a job ends. A job that was put back into the queue need not wait its two minutes."""

        def ended():
            found = self.job(number)
            if found["JobState"] == "PENDING" and found["Reason"] == "BeginTime":
                self.hurry(number)
            return found["JobState"] if found["JobState"] not in ("PENDING", "RUNNING", "COMPLETING") else None

        return wait_until(ended, seconds)


def kill(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_until(holds, seconds, every=0.25):
    """Wait until a condition holds; return its value."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, f"still not so after {seconds} s"
        time.sleep(every)
    return found
