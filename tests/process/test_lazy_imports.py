"""Modules are imported at the first use of a name, while another thread forks."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading, time
import interlock
def lock(name):
    grant = interlock.connect("memory://").lock(name).acquire()
    return grant.release()
thread = threading.Thread(target=lock, args=("a",))
thread.start()
time.sleep(float(sys.argv[1]))
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    os._exit(0 if lock("b") else 1)
thread.join()
sys.exit(os.waitpid(pid, 0)[1] != 0)
"""


@pytest.mark.parametrize("delay", [0.001, 0.003, 0.01, 0.03])
def test_a_child_forked_during_the_first_import_can_lock(delay: float) -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM, str(delay)], timeout=60).returncode == 0
