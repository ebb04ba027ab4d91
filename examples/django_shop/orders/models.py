"""Orders and their receipts."""

from django.db import models


class Order(models.Model):
    """What a customer wants."""

    customer = models.CharField(max_length=100)
    paid = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"order {self.pk} of {self.customer}"


class Receipt(models.Model):
    """What a customer gets; one for each order, however often its task runs."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    text = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.text
