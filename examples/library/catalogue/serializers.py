"""What the API shows and takes: plain serializers, which know nothing of locks or guards."""

from typing import Any

from rest_framework import serializers

from catalogue.models import Book, Copy, Loan, Reader, Reservation


class BookSerializer(serializers.ModelSerializer[Book]):
    """A book; the lending desk changes its status."""

    author_name = serializers.CharField(source="author.name", read_only=True)
    copies = serializers.IntegerField(source="number", read_only=True)

    class Meta:
        model = Book
        fields = ["id", "title", "author", "author_name", "year", "copies", "status", "times_lent"]
        read_only_fields = ["status", "times_lent"]


class RenameSerializer(serializers.ModelSerializer[Book]):
    """The title of a book."""

    class Meta:
        model = Book
        fields = ["title"]


class CopySerializer(serializers.ModelSerializer[Copy]):
    """A copy, and whether it is lent."""

    lent = serializers.BooleanField(read_only=True)

    class Meta:
        model = Copy
        fields = ["id", "book", "number", "shelf", "note", "lent"]


class ReaderSerializer(serializers.ModelSerializer[Reader]):
    """A reader."""

    class Meta:
        model = Reader
        fields = ["id", "card", "name"]


class LoanSerializer(serializers.ModelSerializer[Loan]):
    """A loan."""

    class Meta:
        model = Loan
        fields = ["id", "copy", "reader", "since", "returned_at"]


class ReservationSerializer(serializers.ModelSerializer[Reservation]):
    """A reservation."""

    class Meta:
        model = Reservation
        fields = ["id", "book", "reader", "since", "ended_at"]


class ForReaderSerializer(serializers.Serializer[Any]):
    """For whom something is done."""

    reader = serializers.PrimaryKeyRelatedField(queryset=Reader.objects.all())
