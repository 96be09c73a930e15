"""Run each script of examples/walks as a new user would: `python -m tests.docs.run_walkthroughs [WORD…]`.

Each walk has a new virtual environment.  The wheel of this tree is built first, so `pip install interlock` in a walk
installs this tree.  Prints a table: the times of walks and of installations.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import interlock
from tests.docs.pages import ROOT
from tests.servers import RedisServer

WALKS = sorted((ROOT / "examples" / "walks").glob("*.sh"))
ON_REDIS = ("2-", "3-", "7-")


def main(folder: Path, words: list[str]) -> None:
    """Run the walks whose names contain one of the words; without words all."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT],
        check=True, capture_output=True, env={**os.environ, "INTERLOCK_PURE": "1"},
    )  # fmt: skip
    (folder / "constraints").write_text(f"interlock=={interlock.__version__}\n")
    print("| walk | in all | of that pip |\n|---|---:|---:|")
    with RedisServer() as server:
        for script in WALKS:
            if words and not any(word in script.name for word in words):
                continue
            _walk(script, folder / script.stem, folder / "constraints", server.url)


def _walk(script: Path, home: Path, constraints: Path, redis: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
    for part in ("examples", "docs"):
        shutil.copytree(ROOT / part, home / part, ignore=shutil.ignore_patterns("data", "__pycache__"))
    store = redis if script.name.startswith(ON_REDIS) else (home / "locks").as_uri()
    environment = {
        "PATH": f"{home / 'venv/bin'}:/usr/bin:/bin", "HOME": str(Path.home()), "LANG": "C.UTF-8",
        "INTERLOCK_URL": store, "BROKER": redis, "LEDGER": str(home / "ledger"),
        "PIP_CONSTRAINT": str(constraints), "PIP_QUIET": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPATH": str(home),
    }  # fmt: skip
    environment |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environment["PIP_FIND_LINKS"] = f"{constraints.parent} {os.environ.get('PIP_FIND_LINKS', '')}"
    lines = [line for line in script.read_text().splitlines() if not line.startswith("#")]
    install = [line for line in lines if line.startswith("pip install")]
    began = time.monotonic()
    _run(install, home, environment)
    installed = time.monotonic()
    said = _run([line for line in lines if line not in install], home, environment)
    ended = time.monotonic()
    sys.stderr.write(f"{script.stem}\n{said}\n")
    print(f"| {script.stem} | {ended - began:.0f} s | {installed - began:.0f} s |", flush=True)


def _run(lines: list[str], home: Path, environment: dict[str, str]) -> str:
    words = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
    done = subprocess.run(
        words, cwd=home, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
    )
    if done.returncode:
        raise SystemExit(f"{lines}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    with TemporaryDirectory() as there:
        main(Path(there), sys.argv[1:])
