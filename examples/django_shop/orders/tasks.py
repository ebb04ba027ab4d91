"""The tasks of the shop; `manage.py horae worker` finds them here."""

from datetime import timedelta

from django.utils import timezone
from django_tasks import TaskContext, task

from horae import cron
from horae.django import app
from orders.models import Order, Receipt


@app.task
def send_receipt(order: int) -> str:
    """Write a receipt, once."""
    customer = Order.objects.get(pk=order).customer
    receipt, _ = Receipt.objects.get_or_create(order_id=order, defaults={"text": f"Thank you, {customer}!"})
    return receipt.text


@app.task
async def count_orders() -> int:
    """Count all orders, with the async ORM."""
    return await Order.objects.acount()


@app.task(cpu=True)
def draw_report() -> int:
    """Count all orders in a process of its own, as something that needs a processor would."""
    return Order.objects.count()


@app.schedule(cron("0 3 * * *", tz="Europe/Paris"))
@app.task
def forget_unpaid() -> int:
    """Delete orders that nobody paid for a week."""
    deleted, _ = Order.objects.filter(paid=False, created_at__lt=timezone.now() - timedelta(days=7)).delete()
    return deleted


@task(takes_context=True)
def greet(context: TaskContext, customer: str) -> str:
    """Greet a customer: a task of Django's own API, which Horae runs."""
    if not customer:
        raise ValueError("nobody is there")
    return f"Hello, {customer} (attempt {context.attempt})"


@task
async def agreet(customer: str) -> str:
    """The same as a coroutine."""
    return f"Hello, {customer}, one of {await Order.objects.acount()}"
