import json

import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from schemathesis.checks import not_a_server_error

from ottla.registry.openapi import openapi_document
from ottla.registry.routes import ROUTES
from tests.registries import threaded_registry

EXAMPLES_PER_OPERATION = 4


def test_the_document_has_every_route() -> None:
    paths = json.loads(openapi_document())["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert found == {(route.method, route.path) for route in ROUTES}


def test_no_generated_request_is_a_server_error() -> None:
    schema = schemathesis.openapi.from_dict(json.loads(openapi_document()))
    with threaded_registry() as url:
        for result in schema.get_all_operations():
            operation = result.ok()

            @settings(
                max_examples=EXAMPLES_PER_OPERATION,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                verbosity=Verbosity.quiet,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def check(case: schemathesis.Case) -> None:
                case.call_and_validate(base_url=url, checks=[not_a_server_error])

            check()
