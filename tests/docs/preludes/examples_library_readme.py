from typing import TYPE_CHECKING

from tests.docs.django_site import make_site

if TYPE_CHECKING:  # names that the page or the test runner defines
    from tests.docs.run_page import FOLDER

globals().update(make_site(FOLDER))

from interlock.django import occupy
from interlock.django.guarded import Guarded
