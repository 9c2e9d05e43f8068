"""The options of Spark's JVM, and the output of the JVM and its workers before it is forwarded."""

from pathlib import Path

from ottla.pipelines.spark.jvm import class_path, jvm_options, whole_tracebacks

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


def test_the_jars_with_most_classes_come_first_and_the_others_by_name() -> None:
    names = ["b.jar", "spark-sql_2.13-4.3.0.jar", "a.jar", "spark-sql-api_2.13-4.3.0.jar"]
    names += ["spark-catalyst_2.13-4.3.0.jar", "spark-streaming_2.13-4.3.0.jar"]
    assert [jar.name for jar in class_path(map(Path, names))] == [
        "spark-catalyst_2.13-4.3.0.jar",
        "spark-sql_2.13-4.3.0.jar",
        "spark-sql-api_2.13-4.3.0.jar",
        "a.jar",
        "b.jar",
        "spark-streaming_2.13-4.3.0.jar",
    ]


def test_low_latency_means_the_first_compiler_and_one_collecting_thread() -> None:
    quick = jvm_options({}, is_quick=True)
    assert {"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"} <= set(quick)
    assert not {"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"} & set(
        jvm_options({}, is_quick=False)
    )


def test_a_garbage_collector_of_the_user_takes_the_place_of_ours() -> None:
    options = jvm_options({"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}, is_quick=True)
    assert [option for option in options if option.endswith("GC")] == ["-XX:+UseParallelGC"]
