"""The one line on the error stream."""

import pytest

from interlock.cli.exit_codes import UNAVAILABLE
from tests.support.cli_processes import COMMAND, CliRunner


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_an_error_stream_that_takes_nothing_stops_no_command(run_cli: CliRunner, closed: str) -> None:
    shell = ["env", "-u", "PYTHONUNBUFFERED", "sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND]
    assert run_cli.run("run", "-v", "book", "--", "echo", "done", command=shell) == (0, "done\n", "")
    assert run_cli.run("run", "book", "--", "/nowhere", command=shell)[0] == UNAVAILABLE
