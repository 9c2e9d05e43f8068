"""The OpenAPI document of the registry, generated from the table of routes."""

import re
from functools import cache
from typing import Any, Final

import msgspec

from ottla.registry.routes import ROUTES, Route

_INTEGERS: Final = frozenset({"offset", "limit"})
_TEXTS: Final = frozenset(
    {
        "contextPrefix",
        "findTags",
        "format",
        "key",
        "referenceFormat",
        "ruleType",
        "subject",
        "subjectPrefix",
        "value",
    }
)
_LISTS: Final = frozenset({"findTags", "key", "value"})
_JSON: Final = "application/vnd.schemaregistry.v1+json"
_ERROR: Final = {
    "type": "object",
    "required": ["error_code", "message"],
    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
}


@cache
def openapi_document() -> bytes:
    """Return the document as JSON."""
    bodies = [route.body for route in ROUTES if route.body is not None]
    _, components = msgspec.json.schema_components(
        list(dict.fromkeys(bodies)), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Schema registry", "version": "1"},
            "paths": paths,
            "components": {"schemas": {**components, "Error": _ERROR}},
        }
    )


def _operation(route: Route) -> dict[str, Any]:
    content = {"content": {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    operation: dict[str, Any] = {
        "operationId": route.method.lower() + re.sub(r"\W+", "_", route.path).rstrip("_"),
        "tags": [route.operation.value],
        "parameters": [*_path_parameters(route), *map(_query_parameter, route.query)],
        "responses": {
            "200": {"description": "the answer", "content": {_JSON: {}}},
            "204": {"description": "done; there is nothing to show"},
            "default": {"description": "an error", **content},
        },
    }
    if route.body is not None:
        reference = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        body = {"required": True, "content": {_JSON: {"schema": reference}}}
        operation["requestBody"] = body
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _query_parameter(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "boolean"}
    if name in _INTEGERS:
        schema = {"type": "integer", "format": "int32"}
    elif name in _TEXTS:
        schema = {"type": "string"}
    if name in _LISTS:
        schema = {"type": "array", "items": schema}
    return {"name": name, "in": "query", "schema": schema}
