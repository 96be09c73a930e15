"""The default store of `interlock`: the same for a login shell, for cron, and for any service."""

import os
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.cli_processes import CliRunner

HERE = {"LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
DEFAULT = f"file:///tmp/interlock-{os.geteuid()}"


def environments(tmp_path: Path) -> dict[str, dict[str, str]]:
    """The environments that different starters give a program."""
    for name in ("run", "tmp", "home"):
        (tmp_path / name).mkdir(mode=0o700)
    return {
        "login": {**HERE, "HOME": str(tmp_path / "home"), "XDG_RUNTIME_DIR": str(tmp_path / "run"), "TERM": "xterm"},
        "cron": {"HOME": str(tmp_path / "home"), "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"},
        "tmpdir": {**HERE, "TMPDIR": str(tmp_path / "tmp"), "TMP": str(tmp_path / "tmp")},
        "homeless": {**HERE, "HOME": str(tmp_path / "no such folder")},
        "empty": {},
    }


@pytest.mark.parametrize("holder", ["login", "empty"])
def test_runs_from_everywhere_exclude_each_other(run_cli: CliRunner, tmp_path: Path, holder: str) -> None:
    given = environments(tmp_path)
    name = f"nightly-{uuid.uuid4().hex}"
    run = run_cli.start_and_read("in", "run", name, "--", "sh", "-c", "echo in; cat", env=given[holder])
    for env, umask in zip(given.values(), (0o022, 0o077) * 3, strict=False):
        assert run_cli.run("run", "-n", name, "--", "echo", "in", env=env, umask=umask) == (1, "", "")
    status, printed, errors = run_cli.run("ls", env=env)
    assert (status, errors) == (0, "")
    assert printed.startswith(f"Store {DEFAULT}\n")
    assert name in printed
    assert run.ended()[0] == 0
    assert run_cli.run("run", "-n", name, "--", "echo", "in", env={}) == (0, "in\n", "")


def test_the_library_and_the_command_mean_the_same_store(run_cli: CliRunner, tmp_path: Path) -> None:
    name = f"nightly-{uuid.uuid4().hex}"
    hold = f"""
import interlock
with interlock.connect() as locks, locks.lock({name!r}):
    print("in", flush=True)
    input()
"""
    program = run_cli.start_and_read("in", command=[sys.executable, "-c", hold], env=environments(tmp_path)["login"])
    assert run_cli.run("run", "-n", name, "--", "true", env={})[0] == 1
    program.say("")
    assert program.ended()[0] == 0


def test_a_service_with_a_private_tmp_exits_75_with_advice(run_cli: CliRunner) -> None:
    (run_cli.folder / "mounts").write_text(
        "91 27 0:28 /systemd-private-4f2a-app.service-Xb3/tmp /tmp rw - tmpfs tmpfs rw\n"
    )
    private = run_cli.python_with(
        "import pathlib\nfrom interlock.stores.files import _posix\n"
        f"_posix.MOUNTS = pathlib.Path({str(run_cli.folder / 'mounts')!r})\n"
    )
    status, _, errors = run_cli.run("run", "book", "--", "true", env=private)
    assert status == 75
    assert "PrivateTmp" in errors
    assert "INTERLOCK_URL" in errors
    assert "--store" in errors
    assert run_cli.run("run", "--store", run_cli.url, "book", "--", "true", env=private)[0] == 0
