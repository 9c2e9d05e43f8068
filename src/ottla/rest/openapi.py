"""The OpenAPI document of the REST proxy, generated from the table of routes."""

import re
from functools import cache
from typing import Any, Final

import msgspec

from ottla.rest.call import Route
from ottla.rest.routes import ROUTES

_NUMBERS: Final = frozenset({"partition", "broker", "offset", "timeout", "max_bytes", "limit"})
_LISTS: Final = frozenset({"filter"})
_ERROR: Final = {
    "type": "object",
    "required": ["error_code", "message"],
    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
}


@cache
def openapi_document() -> bytes:
    """Return the document as JSON."""
    bodies = [route.body for route in ROUTES if route.body not in {None, dict}]
    _, components = msgspec.json.schema_components(
        list(dict.fromkeys(bodies)), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "REST proxy", "version": "1"},
            "paths": paths,
            "components": {"schemas": {**components, "Error": _ERROR}},
        }
    )


def _operation(route: Route) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation: dict[str, Any] = {
        "operationId": route.method.lower() + re.sub(r"\W+", "_", route.path).rstrip("_"),
        "tags": [route.kind],
        "parameters": [*_path_parameters(route), *map(_query_parameter, route.query)],
        "responses": {
            "200": {
                "description": "the answer",
                "content": {name: {} for name in route.answer_types},
            },
            "204": {"description": "done; there is nothing to show"},
            "default": {"description": "an error", "content": error},
        },
    }
    if route.body is not None or route.streams_body:
        schema: dict[str, Any] = {"type": "object"}
        if route.body not in {None, dict}:
            assert route.body is not None
            schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        operation["requestBody"] = {
            "required": not route.is_body_optional,
            "content": {name: {"schema": schema} for name in route.body_types},
        }
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _schema(name)}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _schema(name: str) -> dict[str, Any]:
    if name in _NUMBERS:
        return {"type": "integer", "format": "int32", "minimum": 0}
    return {"type": "string", "minLength": 1}


def _query_parameter(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if name in _NUMBERS:
        schema = {"type": "integer", "format": "int32"}
    elif name == "follow":
        schema = {"type": "boolean"}
    if name in _LISTS or name == "partition":
        schema = {"type": "array", "items": schema}
    return {"name": name, "in": "query", "schema": schema}
