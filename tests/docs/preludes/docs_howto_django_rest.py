from typing import TYPE_CHECKING

from tests.docs.django_site import make_site

if TYPE_CHECKING:  # names that the page or the test runner defines
    from typing import Any

    from tests.docs.run_page import FOLDER

    Book: Any

globals().update(make_site(FOLDER))

from rest_framework import serializers, viewsets
from rest_framework.decorators import action


class BookSerializer(serializers.ModelSerializer["Any"]):
    class Meta:
        model = Book
        fields = ["name", "status"]
