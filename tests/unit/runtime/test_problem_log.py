"""A problem that recurs at every retry is logged once."""

import logging

import pytest

from ottla.runtime.problem_log import ProblemLog


def test_a_problem_is_logged_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    problem = ProblemLog(logging.getLogger("ottla.test"))
    problem.is_over("it works")
    for attempt in range(3):
        problem.report(f"attempt {attempt} failed")
    problem.is_over("it works again")
    problem.report("it failed anew")
    assert caplog.messages == ["attempt 0 failed", "it works again", "it failed anew"]


def test_what_is_repeated_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    problem = ProblemLog(logging.getLogger("ottla.test"), logging.WARNING)
    for _ in range(2):
        problem.report("no session")
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING, logging.DEBUG]
