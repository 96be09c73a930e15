"""`manage.py interlock migrate`: several processes start at once, and only one migrates."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections

from interlock.django import databases
from interlock.django.management.commands import interlock as migrating

SETTINGS = """
import json, os
DATABASES = json.loads(os.environ["SITE_DATABASES"])
INSTALLED_APPS = ["interlock.django", "shop"]
SECRET_KEY = "only for tests"
if DATABASES["default"]["ENGINE"].endswith("mysql"):
    from importlib.util import find_spec
    if find_spec("MySQLdb") is None:
        __import__("pymysql").install_as_MySQLdb()
"""
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
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
PODS = 4


@pytest.fixture
def site(databases: None, tmp_path: Path) -> Any:
    """A site with a database that is empty, and a migration that takes a second; its folder and environment."""
    (tmp_path / "shop/migrations").mkdir(parents=True)
    files = {"site_settings.py": SETTINGS, "manage.py": MANAGE, "shop/__init__.py": "", "shop/models.py": "",
             "shop/migrations/__init__.py": "", "shop/migrations/0001_initial.py": SLOW}  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    known = connections.settings["default"]
    place: dict[str, Any] = {field: known[field] for field in ("ENGINE", "HOST", "PORT", "USER", "PASSWORD")}
    place["NAME"] = str(tmp_path / "db.sqlite3") if settings.DATABASE == "sqlite" else f"pods_{os.getpid()}"
    if settings.DATABASE != "sqlite":
        with connections["default"].cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {place['NAME']}")
    environment = {
        **os.environ, "SITE_DATABASES": json.dumps({"default": place}), "SITE_LOG": str(tmp_path / "log")
    }  # fmt: skip
    del environment["DJANGO_SETTINGS_MODULE"]
    yield tmp_path, environment
    if settings.DATABASE != "sqlite":
        with connections["default"].cursor() as cursor:
            cursor.execute(f"DROP DATABASE {place['NAME']}")


def start(site: Any) -> "subprocess.Popen[str]":
    folder, environment = site
    return subprocess.Popen(
        [sys.executable, "manage.py", "interlock", "migrate", "--verbosity", "1"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_one_of_several_processes_migrates_and_the_others_wait_and_go_on(site: Any) -> None:
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
    assert databases.vendor_of("default") != "oracle"
    with pytest.raises(CommandError, match="no lock without a table"):
        call_command("interlock", "migrate")
