(FOLDER / "job").write_text("#!/bin/sh\necho done >>done\n")
(FOLDER / "job").chmod(0o755)
ADDRESSES = {"/tmp/job.lock": str(FOLDER / "job.lock")}


def check():
    assert (FOLDER / "done").read_text() == 4 * "done\n"
