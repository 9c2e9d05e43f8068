"""Visits of a site, made of clicks: `ottla pipeline run examples/clicks.py`.

A visit ends when its visitor has not clicked for half an hour. It is written once, when no further
click can belong to it: the visitor, the start time, and the pages in the order of the clicks.
Unreadable clicks go to a topic of their own, with the reason in a header.
"""

from ottla.streams import stream

CLICKS, VISITS, UNREADABLE = "clicks", "visits", "clicks-unreadable"
GAP = "30 minutes"
PAGES = "transform(array_sort(collect_list(struct(at, page))), click -> click.page)"


def define() -> None:
    """Read clicks, write visits."""
    clicks = stream(CLICKS).json(
        "visitor string, page string, at timestamp", dead_letter_topic=UNREADABLE
    )
    visits = (
        clicks.event_time("at", late="1 minute")
        .group("visitor")
        .session(GAP)
        .aggregate(clicks="count(*)", pages=PAGES)
    )
    visits.key_by("visitor").to(VISITS)


if __name__ == "ottla_pipeline":
    define()
