"""The app `orders`."""

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    """Orders and their receipts."""

    name = "orders"
