"""Two ways to submit a job with a transaction: as a part of it, and after it."""

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from horae.django import on_commit
from orders.models import Order
from orders.tasks import send_receipt


@csrf_exempt
@require_POST
@transaction.atomic
def create_order(request: HttpRequest) -> JsonResponse:
    """Create an order that is paid on the spot: the order and the job for its receipt are one transaction."""
    order = Order.objects.create(customer=request.POST["customer"], paid=True)
    handle = send_receipt.using(tx=connection).submit_sync(order=order.pk)
    return JsonResponse({"order": order.pk, "job": handle.id}, status=201)


@csrf_exempt
@require_POST
@transaction.atomic
def pay_order(request: HttpRequest, order_id: int) -> JsonResponse:
    """Note a payment; the job for the receipt is submitted after the commit."""
    Order.objects.filter(pk=order_id).update(paid=True)
    on_commit(send_receipt.using(key=f"receipt-{order_id}"), order=order_id)
    return JsonResponse({"order": order_id})
