"""The library's REST interface."""

from typing import Any

from guarded.library.models import Author, Book, Counter
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response

from interlock.django.rest import GuardedViewSetMixin, OccupiedViewSetMixin


class BookSerializer(serializers.ModelSerializer[Book]):
    title = serializers.CharField(source="name")
    secret = serializers.CharField(source="notes", write_only=True, required=False)

    class Meta:
        model = Book
        fields = ["id", "title", "status", "price", "bought", "author", "tags", "secret", "copies"]


class PlainBooks(viewsets.ModelViewSet[Book]):
    """No mixin: only the model protects updates."""

    queryset = Book.objects.all()
    serializer_class = BookSerializer


class GuardedBooks(GuardedViewSetMixin, viewsets.ModelViewSet[Book]):
    queryset = Book.objects.select_related("author")
    serializer_class = BookSerializer


class AuthorSerializer(serializers.ModelSerializer[Author]):
    class Meta:
        model = Author
        fields = ["name"]


class NestedSerializer(BookSerializer):
    """Shows another object, and a value that differs each time."""

    author = AuthorSerializer(read_only=True)
    number = serializers.SerializerMethodField()

    class Meta(BookSerializer.Meta):
        fields = [*BookSerializer.Meta.fields, "number"]

    def get_number(self, book: Book) -> int:
        number: int = self.context["view"].number
        return number


class ShelvedBooks(GuardedViewSetMixin, viewsets.ModelViewSet[Book]):
    """Shows only books in use, in two ways."""

    queryset = Book.objects.filter(status="use").select_related("author")
    number = 1

    def get_serializer_class(self) -> Any:
        return NestedSerializer if self.action == "retrieve" else BookSerializer


class StrictBooks(GuardedBooks):
    if_match_required = True


class TaglessBooks(GuardedBooks):
    etags = False


class CounterSerializer(serializers.ModelSerializer[Counter]):
    class Meta:
        model = Counter
        fields = "__all__"


class Counters(GuardedViewSetMixin, viewsets.ModelViewSet[Counter]):
    queryset = Counter.objects.all()
    serializer_class = CounterSerializer


class LockedBooks(OccupiedViewSetMixin, viewsets.ModelViewSet[Book]):
    queryset = Book.objects.all()
    serializer_class = BookSerializer
    occupy_timeout = 0.1


class OccupiedBooks(OccupiedViewSetMixin, GuardedViewSetMixin, viewsets.ModelViewSet[Book]):
    queryset = Book.objects.all()
    serializer_class = BookSerializer
    occupy_timeout = 0.1
    retry_after = 2.5

    @action(detail=True, methods=["post"])
    def lend(self, request: Any, pk: Any = None) -> Response:
        """Lend it, while it is occupied."""
        with self.occupied():
            book = self.get_object()
            book.copies -= 1
            book.save()
            return Response({"copies": book.copies})
