"""System checks of guarded models."""

from typing import Any

from django.core.checks import Error

from interlock.django.guarded.policies import OTHERS, Outcome, policies_of


def of_policies(model: Any) -> list[Error]:
    """Return what is wrong with a model's `on_stale`."""
    names = {field.name for field in model._meta.concrete_fields if not field.primary_key}
    found = []
    for name, policy in policies_of(model).items():
        if name != OTHERS and name not in names:
            found.append(
                Error(
                    f"on_stale names {name!r}, which is no field of the model that a save writes.",
                    hint=f"Its fields are {', '.join(sorted(names))}; '*' stands for all that are not named.",
                    obj=model,
                    id="interlock.E101",
                )
            )
        if not isinstance(policy, Outcome) and not callable(policy):
            found.append(
                Error(
                    f"on_stale says {policy!r} of {name!r}, which is no policy.",
                    hint="Use REFUSE, LAST_WINS or a function of (original, mine, theirs).",
                    obj=model,
                    id="interlock.E102",
                )
            )
    return found
