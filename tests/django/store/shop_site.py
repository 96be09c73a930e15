"""Writes a site with an app `shop`, on the server of the tests, for programs that run it."""

import json
import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections

SETTINGS = """
import json, os
DATABASES = json.loads(os.environ["SITE_DATABASES"])
INSTALLED_APPS = ["interlock.django", "shop"]
SECRET_KEY = "only for tests"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
if DATABASES["default"]["ENGINE"].endswith("mysql"):
    from importlib.util import find_spec
    if find_spec("MySQLdb") is None:
        __import__("pymysql").install_as_MySQLdb()
"""
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""


def make_site(folder: Path, database: str, files: dict[str, str]) -> dict[str, str]:
    """Write the site with more files; return the environment of its programs. Nobody has made its database."""
    files = {"site_settings.py": SETTINGS, "manage.py": MANAGE, "shop/__init__.py": "", **files}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    known = connections.settings["default"]
    place: dict[str, Any] = {field: known[field] for field in ("ENGINE", "HOST", "PORT", "USER", "PASSWORD")}
    place["NAME"] = str(folder / "db.sqlite3") if settings.DATABASE == "sqlite" else database
    environment = {**os.environ, "SITE_DATABASES": json.dumps({"default": place})}
    del environment["DJANGO_SETTINGS_MODULE"]
    return environment
