from pathlib import Path


def input(prompt: str) -> str:
    return ""  # Enter; tests/docs/test_first_screen.py presses it for real


Path("report.sh").write_text("#!/bin/sh\necho report >report\n")
Path("report.sh").chmod(0o755)


def check() -> None:
    assert Path("report").read_text() == "report\n"
