from tests.docs.django_site import make_site

globals().update(make_site(FOLDER))

from rest_framework import serializers, viewsets
from rest_framework.decorators import action


class BookSerializer(serializers.ModelSerializer):
    class Meta:
        model = Book
        fields = ["name", "status"]
