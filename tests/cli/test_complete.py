"""Completion, as a person at bash has it, and as click asks for it."""

import os
import pty
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.shell_completion import ShellComplete

import interlock
from interlock.cli.group import group
from tests.support.house import House
from tests.support.terminal import Terminal


@contextmanager
def bash(house: House) -> Iterator[Terminal]:
    """A person at bash, where completion was set up as the documentation says."""
    house.script("interlock", f'#!/bin/sh\nexec {sys.executable} -m interlock "$@"\n')
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(PATH=f"{house.folder}:{os.environ['PATH']}", INTERLOCK_URL=house.url, PS1="$ ", TERM="dumb")
        os.chdir(house.folder)
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    person = Terminal(master, pid)
    try:
        person.press('bind "set enable-bracketed-paste off"\n')
        person.press('eval "$(_INTERLOCK_COMPLETE=bash_source interlock)"; echo re""ady\n')
        person.see("\nready\n")
        yield person
    finally:
        os.close(master)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_bash_completes_commands_options_and_names_with_colons(house: House) -> None:
    with house.locks.lock("book:one"), bash(house) as person:
        for typed, completed in (
            ("interlock doc", "interlock doctor "),
            ("interlock ls --name", "interlock ls --namespace "),
            ("interlock show bo", "interlock show book:one "),
            ("interlock show book:o", "interlock show book:one "),
            (f"interlock show --store {house.url} b", "book:one "),
            ("interlock run --perm", "interlock run --permits "),
            ("interlock run -w 5 bo", "interlock run -w 5 book:one "),
        ):
            person.press(f"{typed}\t")
            person.see(completed.replace("+", r"\+"))
            person.press("\x15")


class Asked:
    """Asks click as the shells do."""

    def __call__(self, *words: str) -> list[str]:
        *before, incomplete = words
        asked = ShellComplete(group, {}, "interlock", "_INTERLOCK_COMPLETE")
        return [item.value for item in asked.get_completions(list(before), incomplete) if item.type == "plain"]


@pytest.fixture
def asked(house: House, monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setenv("INTERLOCK_URL", house.url)
    return Asked()


def test_the_words_of_run_are_completed_where_they_may_stand(house: House, asked: Asked) -> None:
    with house.locks.lock("book"):
        assert asked("run", "--sh") == ["--shared"]
        assert asked("run", "") == asked("run", "-nE", "42", "") == asked("run", "--", "") == ["book"]
        assert asked("run", "-w", "") == asked("run", "--label", "b") == []
        assert asked("run", "book", "--gr") == ["--grace"]
        assert asked("run", "book", "--", "--gr") == asked("run", "book", "true", "--gr") == []
        assert asked("run", "book", "true", "--namespace", "") == []
        assert "env" in asked("run", "book", "--", "en")
        assert asked("run", "--namespace", "shop", "") == []


def test_claims_and_namespaces_are_completed(house: House, asked: Asked) -> None:
    with interlock.connect(house.url, namespace="shop") as shop, shop.lock("pen") as grant:
        assert asked("ls", "--namespace", "s") == asked("run", "--namespace", "") == ["shop"]
        assert asked("show", "--namespace", "shop", "") == ["pen"]
        assert asked("evict", "--namespace", "shop", "pen", "") == [grant.id]


def test_a_store_that_does_not_answer_completes_nothing(asked: Asked) -> None:
    assert asked("show", "--store", "nonsense://", "") == asked("run", "--store", "file://x/y", "") == []
