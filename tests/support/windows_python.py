"""`python -m tests.support.windows_python ARGUMENTS…`: run Windows' Python under wine with these arguments."""

import os
import stat
import subprocess
import sys
from collections.abc import Sequence

from tests.servers import Missing
from tests.servers.windows import WindowsPython


def main(arguments: Sequence[str]) -> int:
    """Run Windows' Python in the folder of the caller, with pipes as wine needs them; return its exit status."""
    windows = WindowsPython()
    more = {name: value for name, value in os.environ.items() if name.startswith("INTERLOCK_")}
    piped = stat.S_ISFIFO(os.fstat(0).st_mode)
    with subprocess.Popen(
        windows.command(*arguments),
        stdin=None if piped else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=windows.environment(**more),
    ) as python:
        assert python.stdout is not None
        if python.stdin is not None:
            python.stdin.close()
        for line in python.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
    return python.returncode


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except Missing as error:
        raise SystemExit(f"NOT TESTED on windows: {error}") from None
