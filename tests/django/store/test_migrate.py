"""`manage.py interlock migrate`: several processes start at once, and only one migrates."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections
from store.shop_site import make_site

from interlock.django.management.commands import interlock as migrating

SLOW = """
import os, time
from django.db import migrations, models

def slow(apps, editor):
    with open(os.environ["SITE_LOG"], "a") as log:
        log.write(f"begin {os.getpid()}\\n")
    time.sleep(1.0)
    with open(os.environ["SITE_LOG"], "a") as log:
        log.write(f"end {os.getpid()}\\n")

class Migration(migrations.Migration):
    initial = True
    atomic = False
    operations = [
        migrations.RunPython(slow),
        migrations.CreateModel("Book", [("id", models.BigAutoField(primary_key=True))]),
    ]
"""
PODS = 4


@pytest.fixture
def site(databases: None, tmp_path: Path) -> Any:
    """A site with a database that is empty, and a migration that takes a second; its folder and environment."""
    database = f"pods_{os.getpid()}"
    files = {"shop/models.py": "", "shop/migrations/__init__.py": "", "shop/migrations/0001_initial.py": SLOW}
    environment = {**make_site(tmp_path, database, files), "SITE_LOG": str(tmp_path / "log")}
    with connections["default"].cursor() as cursor:
        if settings.DATABASE != "sqlite":
            cursor.execute(f"CREATE DATABASE {database}")
        yield tmp_path, environment
        if settings.DATABASE != "sqlite":
            cursor.execute(f"DROP DATABASE {database}")


def start(site: Any) -> "subprocess.Popen[str]":
    folder, environment = site
    return subprocess.Popen(
        [sys.executable, "manage.py", "interlock", "migrate", "--verbosity", "1"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_one_process_migrates_and_the_others_wait(site: Any) -> None:
    pods = [start(site) for _ in range(PODS)]
    told = [pod.communicate(timeout=200) for pod in pods]
    assert [pod.returncode for pod in pods] == [0] * PODS, told
    begun = (site[0] / "log").read_text().split()
    assert begun[::2] == ["begin", "end"]
    assert begun[1] == begun[3]
    applied = [out for out, _ in told if "Applying shop.0001_initial" in out]
    assert len(applied) == 1
    assert sum("No migrations to apply" in out for out, _ in told) == PODS - 1


def test_a_process_that_is_killed_keeps_nobody_from_migrating(site: Any) -> None:
    first = start(site)
    log = site[0] / "log"
    while not log.exists():
        assert first.poll() is None, first.communicate()
    first.kill()
    first.communicate()
    second = start(site)
    out, error = second.communicate(timeout=200)
    assert second.returncode == 0, error
    assert "Applying shop.0001_initial" in out


def test_it_takes_the_arguments_of_migrate() -> None:
    call_command("interlock", "migrate", "interlock", "--database", "other", "--verbosity", "0")
    with pytest.raises(CommandError, match="No installed app"):
        call_command("interlock", "migrate", "nowhere")


def test_a_database_that_has_no_such_lock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrating, "vendor_of", lambda alias: "oracle")
    with pytest.raises(CommandError, match="no lock without a table"):
        call_command("interlock", "migrate")
