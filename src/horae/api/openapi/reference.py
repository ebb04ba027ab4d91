"""Renders the OpenAPI document as the HTML page of the API reference."""

import json
import shlex
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from horae.api.openapi.schedule_schemas import Schema


class Reference:
    """The HTML page of one OpenAPI document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        server = document["servers"][0]["url"]
        self._prefix = "" if server == "/" else server

    def html(self) -> str:
        info = self._document["info"]
        return (
            f'<body class="docs" data-prefix="{escape(self._prefix)}"><nav>{self._contents()}</nav><main>'
            f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{_prose(info['description'])}</p>"
            f"{self._security()}{''.join(self._sections())}"
            f"<h2>Problems</h2><table>{''.join(self._problems())}</table><h2>Types</h2>{''.join(self._types())}</main>"
        )

    def _operations(self, tag: str) -> Iterator[tuple[str, str, Schema]]:
        for path, verbs in self._document["paths"].items():
            yield from ((verb, path, each) for verb, each in verbs.items() if tag in each["tags"])

    def _contents(self) -> str:
        parts = [f'<a href="{escape(self._prefix)}/"><b>Horae</b></a>']
        for tag in self._document["tags"]:
            items = "".join(
                f'<li><a href="#{each["operationId"]}" title="{verb.upper()} {escape(path)}">'
                f'<span class="method {verb}">{verb}</span> {escape(_short(each["summary"]))}</a></li>'
                for verb, path, each in self._operations(tag["name"])
            )
            parts.append(f"<h4>{escape(tag['name'])}</h4><ul>{items}</ul>")
        return "".join(parts)

    def _security(self) -> str:
        scheme = self._document["components"]["securitySchemes"]["bearer"]
        return (
            f"<section><h3>Authorization</h3><p>{_prose(scheme['description'])}</p>"
            '<p><label>Token for the forms below (kept in this tab only)<input id="token" type="password" '
            'autocomplete="off" spellcheck="false"></label></p></section>'
        )

    def _sections(self) -> Iterator[str]:
        for tag in self._document["tags"]:
            yield f"<h2>{escape(tag['name'].capitalize())}</h2><p class=soft>{_prose(tag['description'])}</p>"
            yield from (self._section(verb, path, each) for verb, path, each in self._operations(tag["name"]))

    def _section(self, verb: str, path: str, each: Schema) -> str:
        scopes = [scope for need in each["security"] for scope in need["bearer"]]
        body = _json_body(each)
        parts = [
            f'<section id="{each["operationId"]}"><header><span class="method {verb}">{verb}</span>',
            f'<h3><code>{escape(path)}</code></h3><span class="scope">{", ".join(scopes) or "open"}</span></header>',
            f"<p>{_prose(each['summary'])}.</p>",
            f"<p>{_prose(each['description'])}</p>" if "description" in each else "",
            _params_table(each["parameters"]),
            "" if body is None else f"<h4>Body</h4><p>{_type(body['schema'])}</p>{self._fields(body['schema'])}",
            f"<h4>Responses</h4><table>{''.join(self._responses(each['responses']))}</table>",
            f"<h4>Example</h4><pre>{escape(_curl(verb, path, each, bool(scopes)))}</pre>",
            _form(verb, path, each),
            "</section>",
        ]
        return "".join(parts)

    def _responses(self, responses: Mapping[str, Schema]) -> Iterator[str]:
        """Yield a row for each successful response, and one row for all problems, which have one shape."""
        for status, response in responses.items():
            if "$ref" not in response:
                kinds = ", ".join(
                    f"{_type(_payload(content['schema']))} <span class=soft>{escape(media)}</span>"
                    for media, content in response["content"].items()
                )
                headers = ", ".join(response.get("headers", {}))
                yield f"<tr><td><code>{status}</code></td><td>{kinds}</td><td class=soft>{escape(headers)}</td></tr>"
        problems = {status: self._problem(response) for status, response in responses.items() if "$ref" in response}
        listed = " ".join(f'<code title="{escape(text)}">{status}</code>' for status, text in problems.items())
        yield f'<tr><td>else</td><td><a href="#type-Problem">Problem</a></td><td class=soft>{listed}</td></tr>'

    def _problem(self, response: Schema) -> str:
        return str(self._document["components"]["responses"][response["$ref"].rpartition("/")[2]]["description"])

    def _fields(self, schema: Schema) -> str:
        found = self._document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], schema)
        needed = found.get("required", [])
        fields = {name: each for name, each in found.get("properties", {}).items() if "readOnly" not in each}
        rows = "".join(_field_row(name, each, name in needed) for name, each in fields.items())
        return f"<table><tr><th>field</th><th>type</th><th>default</th><th></th></tr>{rows}</table>" if rows else ""

    def _problems(self) -> Iterator[str]:
        for name, response in self._document["components"]["responses"].items():
            text = _prose(response["description"])
            yield f"<tr><td><code>{name.removeprefix('Problem')}</code></td><td>{text}</td></tr>"

    def _types(self) -> Iterator[str]:
        for name, schema in self._document["components"]["schemas"].items():
            forms = schema.get("oneOf") or schema.get("anyOf") or ([schema] if "enum" in schema else [])
            choices = "".join(
                f"<li>{_type(form)} {_prose(form.get('description', ''))}{self._fields(form)}</li>" for form in forms
            )
            yield (
                f'<section id="type-{name}"><h3>{name}</h3><p>{_prose(schema.get("description", ""))}</p>'
                f"{self._fields(schema)}{f'<ul>{choices}</ul>' if choices else ''}</section>"
            )


def _payload(schema: Schema) -> Schema:
    """Return the schema of a response; for an event stream, that of the data of each event."""
    data: Schema = schema.get("properties", {}).get("data", schema)
    payload: Schema = data.get("contentSchema", data)
    return payload


def _prose(text: str) -> str:
    """Return text as HTML, with its backquoted parts as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


def _short(summary: str) -> str:
    return summary.partition(",")[0].partition(":")[0].partition(";")[0].replace("`", "")


def _params_table(params: list[Schema]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(param['name'])}</code></td><td class=soft>{param['in']}</td>"
        f"<td>{_type(param['schema'])}</td><td class=soft>{_prose(param.get('description', ''))}</td></tr>"
        for param in params
    )
    return f"<h4>Parameters</h4><table>{rows}</table>" if rows else ""


def _field_row(name: str, schema: Schema, needed: bool) -> str:
    default = "required" if needed and "default" not in schema else _default(schema)
    return (
        f"<tr><td><code>{escape(name)}</code></td><td>{_type(schema)}</td><td class=soft>{default}</td>"
        f"<td class=soft>{_prose(schema.get('description', ''))}</td></tr>"
    )


def _default(schema: Schema) -> str:
    value = schema.get("default")
    return "" if value is None else f"<code>{escape(json.dumps(value))}</code>"


def _type(schema: Schema) -> str:
    """Return the type of a value in a few words, as HTML."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#type-{name}">{name}</a>'
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(choice) for choice in choices))
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    if "enum" in schema:
        return " · ".join(f"<code>{escape(str(word))}</code>" for word in schema["enum"])
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}{_limits(schema)}"
    word = schema.get("format") or (kind if isinstance(kind, str) else " or ".join(kind))
    return f"{escape(word)}{_limits(schema)}"


def _limits(schema: Schema) -> str:
    hints = [
        _range(schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum"), ""),
        _range(schema.get("minLength"), schema.get("maxLength"), " characters"),
        _range(
            schema.get("minItems", schema.get("minProperties")), schema.get("maxItems", schema.get("maxProperties")), ""
        ),
        schema.get("pattern", ""),
    ]
    text = ", ".join(filter(None, hints))
    return f' <span class="soft">({escape(text)})</span>' if text else ""


def _range(low: float | None, high: float | None, unit: str) -> str:
    if low is None and high is None:
        return ""
    return f"{'' if low is None else f'{low:,}'}…{'' if high is None else f'{high:,}'}{unit}"


def _json_body(each: Schema) -> Schema | None:
    content: Mapping[str, Schema] = each.get("requestBody", {}).get("content", {})
    return content.get("application/json")


def _example(each: Schema) -> str | None:
    examples = (_json_body(each) or {}).get("examples", {})
    return next((json.dumps(example["value"], indent=2) for example in examples.values()), None)


def _curl(verb: str, path: str, each: Schema, needs_token: bool) -> str:
    words = ["curl"] if verb == "get" else ["curl", "-X", verb.upper()]
    lines = [f'{" ".join(words)} "$HORAE_URL{path}"']
    if needs_token:
        lines.append('-H "Authorization: Bearer $HORAE_TOKEN"')
    example = _example(each)
    if example is not None:
        lines.append("-H 'Content-Type: application/json'")
        lines.append(f"-d {shlex.quote(json.dumps(json.loads(example)))}")
    return " \\\n  ".join(lines)


def _form(verb: str, path: str, each: Schema) -> str:
    fields = "".join(_input(param, place) for place, param in enumerate(each["parameters"]))
    example = _example(each)
    body = "" if example is None else f'<textarea name="body" spellcheck="false">{escape(example)}</textarea>'
    return (
        f'<details><summary>Try it</summary><form data-method="{verb.upper()}" data-path="{escape(path)}" '
        f'data-media="application/json">{fields}{body}<div class="row"><button>Send</button></div>'
        "<output><pre></pre></output></form></details>"
    )


def _input(param: Schema, place: int) -> str:
    name, needed = escape(param["name"]), " required" if param.get("required") else ""
    return (
        f'<label for="{name}-{place}">{name}</label><input id="{name}-{place}" name="p{place}" data-name="{name}" '
        f'data-in="{param["in"]}"{needed} autocomplete="off">'
    )
