"""The API, browsable at /api/: everybody may look at books, and staff may do all the rest."""

from typing import Any

from django.db.models import Count, QuerySet
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.filters import SearchFilter
from rest_framework.generics import GenericAPIView
from rest_framework.permissions import SAFE_METHODS, IsAdminUser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import IntegerField, Serializer
from rest_framework.viewsets import ModelViewSet, ReadOnlyModelViewSet

from catalogue import lending
from catalogue.models import Book, Copy, Loan, Reader, Reservation
from catalogue.protection.web import GuardedViewSetMixin, OccupiedViewSetMixin
from catalogue.serializers import (
    BookSerializer,
    CopySerializer,
    ForReaderSerializer,
    LoanSerializer,
    ReaderSerializer,
    RenameSerializer,
    ReservationSerializer,
)
from catalogue.thinking import think
from interlock.django.rest import exception_handler

KEY = IntegerField(min_value=1, max_value=2**63 - 1)


def answer(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Answer 409 to what the library's rules forbid, and leave all else to interlock and REST framework."""
    if isinstance(exc, lending.Refused):
        return Response({"detail": str(exc)}, status=status.HTTP_409_CONFLICT)
    return exception_handler(exc, context)


class StaffOrReadOnly(IsAdminUser):
    """Everybody may look."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """True if the request changes nothing, or comes from staff."""
        return request.method in SAFE_METHODS or super().has_permission(request, view)


class Of(GenericAPIView[Any]):
    """Lists of what belongs to one object, if asked so, as by `?copy=7`; and of what is not over, by `?open=1`."""

    of: str

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return what is asked for."""
        rows: Any = super().filter_queryset(queryset)
        asked = self.request.query_params
        if "open" in asked and hasattr(rows, "open"):
            rows = rows.open()
        if self.of in asked:
            rows = rows.filter(**{self.of: KEY.run_validation(asked[self.of])})
        found: QuerySet[Any] = rows
        return found


class Protected(OccupiedViewSetMixin, GuardedViewSetMixin, ModelViewSet[Any]):
    """A view set that occupies an object while it changes it."""

    def perform_update(self, serializer: Any) -> None:
        """Save what the serializer has made of the object that was read."""
        think()
        super().perform_update(serializer)


class BookViewSet(Protected):
    """Books: rename and reserve them."""

    queryset = Book.objects.select_related("author").annotate(number=Count("copies")).order_by("title", "pk")
    serializer_class = BookSerializer
    permission_classes = [StaffOrReadOnly]
    filter_backends = [SearchFilter]
    search_fields = ["title", "author__name"]

    @action(detail=True, methods=["post"], serializer_class=RenameSerializer)
    def rename(self, request: Request, pk: str | None = None) -> Response:
        """Change the title."""
        return self.partial_update(request, pk=pk)

    @action(detail=True, methods=["post"], serializer_class=ForReaderSerializer)
    def reserve(self, request: Request, pk: str | None = None) -> Response:
        """Reserve any copy."""
        reservation = lending.reserve(self.get_object(), _reader(self, request))
        return _created(ReservationSerializer(reservation))


class CopyViewSet(Of, Protected):
    """Copies: borrow and return them."""

    queryset = Copy.objects.select_related("book").with_lent()
    serializer_class = CopySerializer
    permission_classes = [StaffOrReadOnly]
    of = "book"

    @action(detail=True, methods=["post"], serializer_class=ForReaderSerializer)
    def borrow(self, request: Request, pk: str | None = None) -> Response:
        """Lend the copy."""
        return _created(LoanSerializer(lending.borrow(self.get_object(), _reader(self, request))))

    @action(detail=True, methods=["post"], url_path="return", serializer_class=Serializer)
    def give_back(self, request: Request, pk: str | None = None) -> Response:
        """Take the copy back."""
        return Response(LoanSerializer(lending.give_back(self.get_object())).data)


class ReaderViewSet(Protected):
    """Readers."""

    queryset = Reader.objects.all()
    serializer_class = ReaderSerializer


class LoanViewSet(Of, ReadOnlyModelViewSet[Loan]):
    """Loans, which the lending desk makes and ends."""

    queryset = Loan.objects.all()
    serializer_class = LoanSerializer
    of = "copy"


class ReservationViewSet(Of, ReadOnlyModelViewSet[Reservation]):
    """Reservations: cancel them."""

    queryset = Reservation.objects.all()
    serializer_class = ReservationSerializer
    of = "book"

    @action(detail=True, methods=["post"], serializer_class=Serializer)
    def cancel(self, request: Request, pk: str | None = None) -> Response:
        """End the reservation."""
        reservation = self.get_object()
        lending.cancel(reservation)
        return Response(ReservationSerializer(reservation).data)


def _reader(view: Any, request: Request) -> Reader:
    asked = view.get_serializer(data=request.data)
    asked.is_valid(raise_exception=True)
    reader: Reader = asked.validated_data["reader"]
    return reader


def _created(serializer: Any) -> Response:
    return Response(serializer.data, status=status.HTTP_201_CREATED)
