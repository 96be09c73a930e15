from tests.docs.django_site import make_site

globals().update(make_site(FOLDER))

from interlock.django import occupy
from interlock.django.guarded import Guarded
