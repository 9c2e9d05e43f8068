"""What Spark's JVM and its workers say, before it is passed on."""

from ottla.pipelines.jvm import whole_tracebacks

TRACEBACK = """\
Traceback (most recent call last):
  File "worker.py", line 1, in <module>
    1 / 0
ZeroDivisionError: division by zero
"""


def test_a_traceback_stays_together_and_other_lines_come_one_by_one() -> None:
    said = f"a warning\n  indented\n{TRACEBACK}the end\n"
    assert list(whole_tracebacks(said.splitlines(keepends=True))) == [
        "a warning\n",
        "  indented\n",
        TRACEBACK,
        "the end\n",
    ]


def test_half_a_traceback_is_not_kept_back() -> None:
    half = TRACEBACK.splitlines(keepends=True)[:2]
    assert list(whole_tracebacks(half)) == ["".join(half)]
