"""The contract on advisory locks, in both colours, but for what `not_applicable` declares."""

import inspect

from interlock import testing
from interlock.testing.contract import *  # noqa: F403
from tests.advisory.not_applicable import NOT_APPLICABLE, NOT_APPLICABLE_WITH

del kind  # noqa: F821  (the one of conftest has their kinds only)


def test_what_is_declared_as_not_applicable_plays_with_semaphores() -> None:
    for name in {*NOT_APPLICABLE, *NOT_APPLICABLE_WITH}:
        found = getattr(testing.contract, name)
        marks = str(getattr(found, "pytestmark", ""))
        with_any_kind = "KINDS" in inspect.getsource(found)
        assert "semaphore" in inspect.getsource(found) + marks or with_any_kind, name
