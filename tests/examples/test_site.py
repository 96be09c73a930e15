"""The site's own tests pass, under each protection."""

import pytest

from tests.support.library_site import Example


@pytest.mark.parametrize("protection", [pytest.param("none", marks=pytest.mark.rare), "guarded", "occupy"])
def test_the_tests_of_the_site_hold_under_each_protection(example: Example, protection: str) -> None:
    ran = example.run("-W", "error", "manage.py", "test", timeout=200, LIBRARY_PROTECTION=protection)
    assert ran.returncode == 0, ran.stderr
    assert "skipped" not in ran.stderr


def test_the_migrations_know_the_models(example: Example) -> None:
    ran = example.run("manage.py", "makemigrations", "--check", "--dry-run", timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_django_finds_nothing_wrong_when_the_site_is_set_up(example: Example) -> None:
    example.run("manage.py", "setup", timeout=100)
    databases = ("--database", "default", "--database", "locks")
    ran = example.run("manage.py", "check", *databases, "--fail-level", "WARNING", timeout=100)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [("LIBRARY_PROTECTION", "all"), ("LIBRARY_DATABASE", "paper"), ("LIBRARY_THINKING_TIME", "long")],
)
def test_a_wrong_setting_is_named(example: Example, variable: str, value: str) -> None:
    ran = example.run("manage.py", "check", timeout=100, **{variable: value})
    assert ran.returncode != 0
    assert variable in ran.stderr
    assert repr(value) in ran.stderr
