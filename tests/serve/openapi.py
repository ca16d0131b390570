"""openapi.py - checks answers of the server against app/serve/openapi.json: the part of JSON Schema
that the document uses, of which anything else is refused."""

import fnmatch
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = json.loads((ROOT / "app" / "serve" / "openapi.json").read_text(encoding="utf-8"))
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
WORDS = {"$ref", "type", "enum", "properties", "required", "additionalProperties", "items",
         "maxItems", "minimum", "maximum", "pattern", "oneOf", "allOf", "description", "default"}


def is_type(value, name):
    if name in ("integer", "number"):
        return not isinstance(value, bool) and isinstance(
            value, (int, float) if name == "number" else int)
    return isinstance(value, TYPES[name])


def resolve(node):
    while "$ref" in node:
        found = DOCUMENT
        for part in node["$ref"][2:].split("/"):
            found = found[part]
        node = found
    return node


def of_object(value, schema, where):
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where} lacks {name}"
    for name, v in value.items():
        if name in known:
            yield from faults(v, known[name], f"{where}.{name}")
        elif more is False:
            yield f"{where}.{name} is not in the document"
        elif more is not True:
            yield from faults(v, more, f"{where}.{name}")


def faults(value, schema, where="the body"):
    """What is wrong with a value, as sentences."""
    schema = resolve(schema)
    assert set(schema) <= WORDS, set(schema) - WORDS
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    if types and not any(is_type(value, t) for t in types):
        yield f"{where} is {str(value)[:60]!r}, not of {types}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {str(value)[:60]!r}, not one of {schema['enum']}"
    for part in schema.get("allOf", ()):
        yield from faults(value, part, where)
    if "oneOf" in schema:
        each = [list(faults(value, part, where)) for part in schema["oneOf"]]
        if sum(not e for e in each) != 1:
            yield f"{where} is not exactly one of {len(each)}: {min(each, key=len)}"
    if isinstance(value, dict):
        yield from of_object(value, schema, where)
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{where} has {len(value)} items"
        for i, v in enumerate(value):
            yield from faults(v, schema.get("items", {}), f"{where}[{i}]")
    if is_type(value, "number") and not (
            schema.get("minimum", value) <= value <= schema.get("maximum", value)):
        yield f"{where} is {value}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{where} is {value!r}, not {schema['pattern']}"


def path_of(path):
    """The path of the document that a request is of; None: there is none. Plain ones go first."""
    path = path.split("?")[0]
    if path.startswith("/api/"):    # where the routes of ComfyUI exist as well
        path = path[4:]
    for template in sorted(DOCUMENT["paths"], key=lambda t: t.count("{")):
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            return template
    return None


def of_events(body, schema):
    for e in body.decode().strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in e.split("\n"))
        data = json.loads(lines["data"])
        if lines["event"] != data["type"]:
            yield f"an event is called {lines['event']} and has {data['type']}"
        yield from faults(data, schema, "an event")


def complaints(method, path, reply):
    """What of an answer the document does not say."""
    item = DOCUMENT["paths"].get(path_of(path), {})
    operation = item.get("get" if method == "HEAD" else method.lower())
    status, kind = str(reply.status), reply.headers.get("Content-Type", "").split(";")[0]
    if method == "OPTIONS" and status == "204":
        return
    if not operation and reply.status < 400:
        yield f"there is no {method} {path} in the document, and it is answered with {status}"
        return
    answers = (operation or {"responses": {"default": {
        "$ref": "#/components/responses/Error"}}})["responses"]
    answer = resolve(answers.get(status) or answers["default"])
    if status not in answers and reply.status < 400:
        yield f"{status} is not in the document"
    if method == "HEAD" or "content" not in answer:
        if reply.body:
            yield f"{len(reply.body)} bytes where none are in the document"
        return
    of = [v for k, v in answer["content"].items() if fnmatch.fnmatch(kind, k)]
    if not of:
        yield f"the type {kind!r} is not in the document"
    elif kind == "application/json":
        yield from faults(json.loads(reply.body), of[0]["schema"])
    elif kind == "text/event-stream":
        yield from of_events(reply.body, of[0]["x-event-schema"])
