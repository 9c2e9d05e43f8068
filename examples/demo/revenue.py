"""The pipeline: orders and their payments are joined, and summed up by product and time.

It is a file like any other pipeline's: `ottla pipeline run examples/demo/revenue.py`.
"""

from ottla.streams import stream

ORDERS, PAYMENTS, REVENUE = "orders", "payments", "revenue"
WINDOW = "2 seconds"


def define() -> None:
    """Read two topics, and write one: the paid amount per product and window.

    Orders have a schema in the registry; payments are plain JSON.
    """
    orders = stream(ORDERS).typed()
    payments = stream(PAYMENTS).json("order long, at timestamp")
    paid = orders.event_time("at", late="2 seconds").join(
        payments.event_time("at", late="2 seconds"), on="order", within="1 second"
    )
    sums = paid.group("product").window(WINDOW).aggregate(orders="count(*)", cents="sum(amount)")
    sums.to(REVENUE)


if __name__ == "ottla_pipeline":
    define()
