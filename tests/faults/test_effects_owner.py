"""Proof of death: what counts as one, and what only looks like it. A wrong proof is a second effect."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pokayoke.runtime.driver.claim_owner import current_owner, is_dead

NAMED = "from pokayoke.runtime.driver.claim_owner import current_owner; print(current_owner(), flush=True)\n"


def started(body, **options):
    """Start a process that tells its name; returns it with the name."""
    child = subprocess.Popen([sys.executable, "-c", NAMED + body], stdout=subprocess.PIPE, text=True, **options)
    name = child.stdout.readline().strip()
    assert name
    return child, name


def ended(child):
    child.kill()
    child.wait(10)
    child.stdout.close()


def eventually(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in 10 s"
        time.sleep(0.01)


def test_a_living_and_a_suspended_process_are_not_dead():
    """SIGSTOP is no death: the process may go on any time."""
    child, name = started("import time; time.sleep(60)")
    try:
        assert not is_dead(name)
        child.send_signal(signal.SIGSTOP)
        eventually(lambda: " T " in Path(f"/proc/{child.pid}/stat").read_text())
        assert not is_dead(name)
    finally:
        ended(child)


def test_a_killed_process_is_dead_whether_or_not_its_parent_has_looked():
    """What is left of a killed process, and its absence, both prove its death."""
    child, name = started("import time; time.sleep(60)")
    child.kill()
    eventually(lambda: is_dead(name))
    ended(child)
    assert is_dead(name)


def test_a_process_whose_first_thread_has_ended_is_not_dead():
    """A process shown as a zombie while another of its threads still works is alive: its effect may come."""
    body = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    child, name = started(body)
    try:
        eventually(lambda: " Z " in Path(f"/proc/{child.pid}/stat").read_text())
        assert not is_dead(name)
    finally:
        ended(child)
    assert is_dead(name)


def test_a_child_with_the_pid_of_a_gone_ancestor_names_itself(monkeypatch):
    """After a fork nothing of what the parent knew about pids is used: the pid may be given out anew."""
    stale = current_owner()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, str(current_owner.__globals__["_name_process"].cache_info().currsize).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(ours, 8) == b"0" or stale == ""
    os.close(ours)
    os.close(theirs)


def test_what_another_boot_machine_or_space_has_named_is_never_dead():
    """Only the same boot of the same machine and process space can be looked into."""
    child, name = started("")
    ended(child)
    assert is_dead(name)
    machine, boot, space, pid, tick = name.split("|")
    for other in (
        f"x{machine}|{boot}|{space}|{pid}|{tick}", f"{machine}|x{boot}|{space}|{pid}|{tick}",
        f"{machine}|{boot}|x{space}|{pid}|{tick}", f"{machine}|{boot}|{space}|x|{tick}", "", "dead", "a|b|c|d|e",
    ):  # fmt: skip
        assert not is_dead(other)


@pytest.mark.privileged
def test_a_process_that_proc_hides_is_not_dead(need):
    """Where users see only their own processes, another user's process is not taken for dead."""
    child, name = started("import time; time.sleep(60)")
    look = (
        f"import os\nfrom pokayoke.runtime.driver.claim_owner import is_dead\nis_dead({name!r})\nos.setgid(65534)\nos.setuid(65534)\n"
        f"print(os.path.exists('/proc/{child.pid}/stat'), is_dead({name!r}))"
    )
    mounted = f'mount -t proc -o hidepid=2 proc /proc && exec "{sys.executable}" -c "$0"'
    try:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", mounted, look], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        need("unshare (util-linux)")
    finally:
        ended(child)
    if done.returncode:
        need(f"root and the right to mount /proc: {done.stderr.strip()[-200:]}")
    assert done.stdout.split() == ["False", "False"], done.stderr
