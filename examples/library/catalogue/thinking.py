"""A pause between what code reads and what it writes."""

import time

from django.conf import settings


def think() -> None:
    """Wait for LIBRARY_THINKING_TIME, as if something slow were to be asked; by default not at all.

    A race is lost in this pause. Without one it is lost as well, but not in each round.
    """
    if settings.THINKING_TIME:
        time.sleep(settings.THINKING_TIME)
