"""Install each extra alone in an empty environment, and use its feature: `./dev extras`."""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
USES = {
    "": "import interlock.stores.files, interlock.stores.sqlite",
    "cli": "from interlock.cli import main; assert main(['ls', '--store', 'memory://x']) == 0",
    "testing": "import interlock.testing.contract, interlock.testing.fakes",
    "redis": "import interlock.redis; interlock.connect('redis://127.0.0.1:1').close()",
    "valkey": "interlock.connect('valkey://127.0.0.1:1').close()",
    "django": "import django; from interlock.django import occupy",
    "sql": "import interlock.sql, sqlalchemy, psycopg",
    "postgresql": "import psycopg; import interlock.stores.postgresql",
    "mariadb": "import pymysql; import interlock.stores.mysql",
    "otel": "import interlock.otel; interlock.otel.instrument()()",
    "serve": "import interlock.cli.serve, starlette, uvicorn",
    "all": "import interlock.redis, interlock.sql, interlock.otel, interlock.cli.serve, django, pymysql",
}
"""Statements by extra; the empty extra is the package alone."""
LOCK = "import interlock; interlock.connect('memory://').lock('a').acquire().release(); "


def try_out(extra: str) -> str:
    """Install an extra and use it; return the error text, if any."""
    with tempfile.TemporaryDirectory(prefix="interlock-extra-") as folder:
        python = f"{folder}/bin/python"
        wanted = f"{ROOT}[{extra}]" if extra else str(ROOT)
        for command in (
            [sys.executable, "-m", "venv", folder],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted],
            [python, "-I", "-c", LOCK + USES[extra]],
        ):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                return done.stdout + done.stderr
    return ""


def main() -> int:
    """Try the extras in the arguments, or all; return 1 if one failed."""
    failed = 0
    for extra in sys.argv[1:] or USES:
        problem = try_out(extra)
        print(f"Python {sys.version.split()[0]}, {extra or 'no extra'}: {problem or 'ok'}", flush=True)
        failed |= bool(problem)
    return failed


if __name__ == "__main__":
    sys.exit(main())
