"""A page of Spark's errors becomes one sentence."""

from ottla.pipelines.running.failures import sentence_of, where_in

RAISED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due \
to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in \
stage 1.0 (TID 4) (localhost executor driver): org.apache.spark.SparkRuntimeException: \
[USER_RAISED_EXCEPTION] orders-0 offset 7: field id is no bigint: x SQLSTATE: P0001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala:2787)
"""
PYTHON = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source \
perform latestOffset: Traceback (most recent call last):
  File "/a/runner.py", line 130, in main
    handle()
ottla.pipelines.source.errors.SourceReadError: topic orders is not there: create it
  or name another

\tat org.apache.spark.sql.Errors$.raise(Errors.scala:1)
 SQLSTATE: 38000
"""
PYTHON_AND_PAGE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
Traceback (most recent call last):
  File "/a/runner.py", line 130, in main
ottla.model.api_error.ApiError: there is no topic 'orders'
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: shop/orders [id = 1, runId = 2]
Current Committed Offsets: {}
"""
ANALYSIS = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved. Did \
you mean one of the following? [`id`]. SQLSTATE: 42703; line 1 pos 0;
'Project ['x]
+- Relation [id#1]
"""


def test_a_record_that_was_refused_is_all_that_is_said() -> None:
    assert sentence_of(Exception(RAISED)) == "orders-0 offset 7: field id is no bigint: x"


def test_what_python_said_is_told_without_its_traceback() -> None:
    sentence = "topic orders is not there: create it or name another"
    assert sentence_of(Exception(PYTHON)) == sentence
    assert sentence_of(Exception(PYTHON_AND_PAGE)) == "there is no topic 'orders'"


def test_of_anything_else_the_first_line_is_told_without_codes() -> None:
    said = sentence_of(Exception(ANALYSIS))
    assert said.startswith("A column with name `x` cannot be resolved.")
    assert said.endswith("one of the following? [`id`].")
    assert sentence_of(ValueError("plain")) == "plain"
    assert sentence_of(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_the_place_in_a_file_is_the_last_line_of_it() -> None:
    try:
        exec(compile("a = 1\nb = a / 0\n", "shop.py", "exec"), {})
    except ZeroDivisionError as error:
        assert where_in("shop.py", error) == "shop.py line 2"
