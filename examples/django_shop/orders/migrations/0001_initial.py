"""Orders and their receipts."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """The first tables."""

    initial = True
    dependencies = []  # noqa: RUF012 - as Django writes it

    operations = [  # noqa: RUF012 - as Django writes it
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("customer", models.CharField(max_length=100)),
                ("paid", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name="Receipt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("text", models.CharField(max_length=200)),
                ("order", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, to="orders.order")),
            ],
        ),
    ]
