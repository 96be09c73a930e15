"""`manage.py interlock`: the command line, on the locks of INTERLOCK."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from interlock.django import locks


def interlock(*words: str) -> int:
    """Run the command; return its exit status."""
    try:
        call_command("interlock", *words)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_ls_and_show_list_the_claims(capfd: pytest.CaptureFixture[str]) -> None:
    with locks.lock("nightly", label="backup") as grant:
        assert interlock("ls", "--json") == 0
        listed: list[dict[str, Any]] = json.loads(capfd.readouterr().out)
        assert [line["name"] for line in listed] == ["nightly"]
        assert interlock("show", "nightly") == 0
        said = capfd.readouterr().out
        assert "backup" in said
        assert str(grant.fence) in said


def test_evict_takes_a_claim_away() -> None:
    grant = locks.lock("nightly").acquire()
    assert interlock("evict", "nightly") == 0
    assert not grant.renew()
    assert interlock("evict", "nightly") == 1


def test_doctor_examines_the_configured_store(capfd: pytest.CaptureFixture[str]) -> None:
    assert interlock("doctor") == 0
    assert "INTERLOCK['default']" in capfd.readouterr().out


def test_run_holds_the_lock_while_the_command_runs(capfd: pytest.CaptureFixture[str]) -> None:
    program = (
        "import os, sys; print(os.environ['INTERLOCK_NAME'], int(os.environ['INTERLOCK_FENCE']) > 0); sys.exit(3)"
    )
    assert interlock("run", "-n", "nightly", "--", sys.executable, "-c", program) == 3
    assert capfd.readouterr().out == "nightly True\n"
    with locks.lock("nightly"):
        assert interlock("run", "-n", "nightly", "--", "true") == 1
    assert locks.claims() == []


def test_another_entry_can_be_chosen(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    places = {"files": {"LOCATION": f"file://{tmp_path}", "NAMESPACE": "site"}}
    with override_settings(INTERLOCK=places), locks["files"].lock("a"):
        assert interlock("--alias", "files", "ls", "--json") == 0
        assert [line["name"] for line in json.loads(capfd.readouterr().out)] == ["a"]
        assert interlock("--alias=files", "ls", "--namespace", "other") == 0
        assert "No lock is held" in capfd.readouterr().out
        assert interlock("ls", "--store", f"file://{tmp_path}", "--namespace", "site", "--json") == 0
        assert [line["name"] for line in json.loads(capfd.readouterr().out)] == ["a"]


def test_an_entry_that_is_not_there_is_said() -> None:
    with pytest.raises(CommandError, match="has no 'nowhere'"):
        interlock("--alias", "nowhere", "ls")


def test_wrong_usage_has_the_status_of_the_command_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert interlock("show") == 64
    assert "interlock show --help" in capfd.readouterr().err
    assert interlock() == 0  # the help
