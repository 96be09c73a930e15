from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names that the page or the test runner defines
    from tests.docs.run_page import FOLDER

(FOLDER / "job").write_text("#!/bin/sh\necho done >>done\n")
(FOLDER / "job").chmod(0o755)
ADDRESSES = {
    "/tmp/report.lock": str(FOLDER / "report.lock"),
    "/tmp/job.lock": str(FOLDER / "job.lock"),
    "/var/lib/app/locks": str(FOLDER / "locks"),
}
made: list[int] = []


def make_report() -> None:
    made.append(1)


def check() -> None:
    assert len(made) == 3
    assert (FOLDER / "done").read_text() == "done\n"
