"""Renders chat templates and single expressions with transformers and jinja2.

usage: chat_reference.py FOLDER

Writes FOLDER/cases.json: a list of {name, template, variables, text, ranges}, without text where Python raises. Ranges
are in characters. Uses the templates of the packages trl and axolotl too, where they are installed.
"""
import importlib.util
import itertools
import json
import pathlib
import sys

from transformers.utils import chat_template_utils

# --- templates that together use all that published ones do -----------------------------------------------------------

TEMPLATES = {
    "white_space": """  {# a comment #}
start {%- if true %}  one  {% endif -%}   two
  {% if false %}x{% endif %}
    {%+ if true %}kept{%+ endif +%}
line {{- ' joined ' -}}   end
\t{% raw %}{{ not read }} {% if %}{% endraw %}
  {%- raw -%}   trimmed {{ }}  {%- endraw -%}   after
{#- gone -#}   tail \r\nwindows\rmac {%- set x = 1 +%}
x{{ x }}
{% for i in [1, 2] %}
  {{ i }}
  {% endfor %}
""",
    "scopes": """{% set a = 1 %}{% set ns = namespace(a=1, list=[]) %}
{% macro show(x, y='d', z=a) %}[{{ x }}|{{ y }}|{{ z }}|{{ late }}|{{ kwargs }}|{{ varargs }}]{% endmacro %}
{% macro count(n) %}{{ n }}{% if n > 0 %},{{ count(n - 1) }}{% endif %}{% endmacro %}
{% for i in range(3) %}{% set a = a + i %}{% set ns.a = ns.a + i %}{% set ns.list = ns.list + [a] %}{{ a }}{% endfor %}
{{ a }} {{ ns.a }} {{ ns.list }} {{ ns.none is defined }}
{% if true %}{% set late = 'set' %}{% endif %}
{{ show(1) }}{{ show(1, 2, 3) }}{{ show(z=1, x=2) }}{{ show() }}{{ show(1, 2, 3, 4, q=5) }}{{ count(4) }}
{% set captured | trim | upper %}  text {% set inner = 2 %}{{ inner }} {% endset %}<{{ captured }}|{{ inner }}>
{% set p, q = 1, 'two' %}{{ p }}{{ q }}{% set r = (1,) %}{{ r }}{% for k, (v, w) in [(1, (2, 3))] %}{{ k + v + w }}{% endfor %}
{% for x in [] %}{% else %}none{% endfor %}{% for x in [1] if x > 1 %}{% else %}filtered{% endfor %}
""",
    "loops": """{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}
{{- loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.cycle('a', 'b') }}{{ (loop.previtem or {}).role }}{{ loop.nextitem.role if loop.nextitem }}
{% for c in m.content if c != 'l' %}{{ c }}{{ loop.index }}{% if loop.index > 6 %}{% break %}{% endif %}{% endfor %}
{% endfor %}{% for i in range(10) %}{% if i is odd %}{% continue %}{% endif %}{% if i == 6 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for k, v in {'b': 1, 'a': [1, 'x']}.items() %}{{ k }}={{ v }};{% endfor %}{% for k in {'z': 1} %}{{ k }}{% endfor %}
{% set seen = namespace(n=0) %}{% for m in messages if seen.n < 2 %}{% set seen.n = seen.n + 1 %}{{ m.role }}{% endfor %}
""",
    "chatml": """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nD<|im_end|>\\n' }}{% endif %}
<|im_start|>{{ message.role }}
{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>
{% endgeneration %}{% else %}{{ message.content }}<|im_end|>
{% endif %}{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}
""",
    "generation": """{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}ü{%- generation -%} {{ m.content | trim }}{% set x = 1 %}{{ eos_token }} {%- endgeneration +%}
{% else %}{{ m.role[0] | upper }}: {{ m.content }}{{ x }}
{% endif %}{% endfor %}{% generation %}{% endgeneration %}
""",
    "tools": """{%- if tools is iterable and tools | length > 0 %}
{{- "# Tools\\n" }}
{%- for tool in tools %}{{- tool | tojson }}{{ '\\n' }}{{ tool | tojson(indent=2) }}{{ tool.function.parameters.properties | items | list }}
{%- for name, p in tool.function.parameters.properties | dictsort %}{{ name ~ ':' ~ p.type }}{{ ' required' if name in tool.function.parameters.required }};{% endfor %}
{%- endfor %}
{%- endif %}
{%- for m in messages %}
{%- if m.tool_calls is defined and m.tool_calls %}
{%- for call in m.tool_calls %}
{%- set call = call.function if call.function else call %}
{{- '<tool_call>{"name": "' + call.name + '", "arguments": ' }}{{ call.arguments if call.arguments is string else call.arguments | tojson(ensure_ascii=False) | safe }}{{ '}</tool_call>' }}
{%- for key, value in call.arguments.items() if value is not none %}{{ key }}={{ value }}({{ value is mapping }}{{ value is sequence }}{{ value is boolean }}){% endfor %}
{%- endfor %}
{%- endif %}
{{- m.content if m.content is string else m.content | map(attribute='text') | join('|') }}
{%- endfor %}
{{- messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | tojson }}
{{- messages | map(attribute='role') | unique | join(',') }}{{ messages | rejectattr('tool_calls') | list | length }}
""",
    "last_user": """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
{%- set index = (messages|length - 1) - loop.index0 %}
{%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
{%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
{%- endif %}{%- endfor %}
{%- for message in messages %}
{%- set reasoning_content = '' %}
{%- set content = message.content if message.content is string else '' %}
{%- if message.reasoning_content is string %}{%- set reasoning_content = message.reasoning_content %}
{%- elif '</think>' in content %}
{%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}
{{- loop.index0 ~ (loop.index0 > ns.last_query_index) ~ '<' ~ reasoning_content ~ '>' ~ content ~ '\\n' }}
{%- endfor %}
""",
    "raises": """{% if messages[0].role == 'assistant' %}{{ raise_exception('begins with ' + messages[0].role) }}{% endif %}
{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}{{ m.content.strip() }}{% endfor %}
""",
    "macros": """{% macro typed(p) %}{% if p.type is string %}{% if p.type == 'object' %}{ {% for k, v in p.properties.items() %}{{ k }}: {{ typed(v) }}{{ ", " if not loop.last }}{% endfor %} }{% else %}{{ p.type | capitalize }}{% endif %}{% else %}{{ p.type | join(' | ') | title }}{% endif %}{% endmacro %}
{% macro all() %}{% for v in varargs %}{{ v }}{% endfor %}{% for k, v in kwargs | dictsort %}{{ k }}{{ v }}{% endfor %}{% endmacro %}
{% set macros = [typed, all] %}{% set args = [1, 'b'] %}{{ macros[1](*args, **{'k': 1}) }}
{% for t in tools or [] %}{{ typed(t.function.parameters) | trim }}{% endfor %}
""",
    "documents": """{% for d in documents | default([]) %}Document: {{ loop.index0 }}
{% for k, v in d.items() %}{{ k | title }}: {{ v | string | replace('\\n', ' ') }}{{ '' if loop.last else '\\n' }}{% endfor %}{% endfor %}
{{ now is undefined }}{{ (strftime_now('%Y') | int) > 2000 }}{{ d | default('x', true) }}{{ '%' ~ 1.0 ~ none ~ true }}
""",
}
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather <b> & \"q\" of a city", "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "é"}, "days": {"type": "array", "items": {"type": "integer"}},
        "o": {"type": "object", "properties": {"x": {"type": ["number", "null"]}}}}, "required": ["city"]}}}]
DOCUMENTS = [{"title": "one", "text": "a\nb"}, {"title": "zwei ü", "text": "c"}]
ARGUMENTS = {"city": "Köln", "days": [1, 2], "f": 1.5, "b": True, "n": None, "o": {"x": 1e20}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def tool_call(arguments):
    return {"type": "function", "id": "abcdefghi", "function": {"name": "get_weather", "arguments": arguments}}


CONVERSATIONS = [
    [user("Hello")],
    [user("Hello"), assistant("Hi there!"), user(" more \n"), assistant(" yes \n")],
    [{"role": "system", "content": "Be brief."}, user("😀 é\u0301 “q”"), assistant("日本語 <tag> & 'x' \"y\"")],
    [user("```\n{{ x }}\n```"), assistant("{% raw %}\n\tint main() {}\n")],
    [user(""), assistant("")],
    [user("q"), assistant("<think>\nhm\n</think>\n\nanswer"), user("r"),
     {"thinking": "why\n", **assistant("s", reasoning_content="why\n")}],  # under both names, as transformers passes it
    [user("w?"), assistant("", tool_calls=[tool_call(ARGUMENTS), tool_call({})]),
     {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": "3"}, assistant("It is 3.")],
    [user("w?"), assistant("x", tool_calls=[tool_call(json.dumps(ARGUMENTS))])],
    [user([{"type": "text", "text": "what"}, {"type": "text", "text": "is"}]), assistant([{"type": "text", "text": "it"}])],
    [user("a"), user("b")],
    [assistant("a"), user("b")],
    [],
]
OPTIONS = [{}, {"add_generation_prompt": True}, {"tools": TOOLS, "add_generation_prompt": True, "enable_thinking": False},
           {"tools": TOOLS, "documents": DOCUMENTS, "enable_thinking": True}]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def published():
    for package in ("trl", "axolotl"):
        found = importlib.util.find_spec(package)
        if found:
            for path in sorted(pathlib.Path(found.origin).parent.rglob("*.jinja")):
                yield f"{package}/{path.name}", path.read_bytes().decode()


# --- expressions ------------------------------------------------------------------------------------------------------

NUMBERS = ["0", "1", "-3", "7", "True", "2.5", "-0.5", "1e16", "1e-5", "3.0"]
TEXTS = ["''", "'a'", "'Hello World'", "'  x y  '", "'ß Straße éÉ ǆ ﬁ'", "'ΑΣ ΣΑΣ'", "'😀日本語'",
         "'a-b_c (d) <e> o\\'neil'", "'x\\n\\ty\\r\\nz\\n'", "'12'", "'-1.5'", "'\\x00\\x1f\\x7f\\u200b\\\\'",
         "'İi\\u00a0'"]
LISTS = ["[]", "[1, 2, 3]", "['b', 'A', 'a', 'C']", "(1,)", "()", "('x', 'y')", "[[1], [1, 2]]", "range(4)",
         "range(5, 0, -2)"]
OTHERS = ["none", "{}", "{'b': 1, 'a': [None, {'c': 2.0}], 3: True}", "missing", "data.list", "data"]
VALUES = NUMBERS + TEXTS + LISTS + OTHERS
OPERANDS = ["0", "True", "2.5", "-3", "'a'", "'é12'", "[]", "[1, 'a']", "(1,)", "{'a': 1}", "none", "missing"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]
FILTERS = ["length", "trim", "upper", "lower", "capitalize", "title", "string", "list", "first", "last",
           "items | list", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=True)",
           "tojson(separators=(',', ':'), sort_keys=true)", "int", "int(5)", "float", "default('d')",
           "default('d', true)", "join", "join('-')", "reverse | list", "sort", "sort(reverse=true)",
           "unique | list", "dictsort", "min", "max", "sum", "escape", "safe", "replace('a', 'X')",
           "replace('', '.')", "indent", "indent(2, true)", "map('string') | list", "map('upper') | join",
           "select | list", "select('string') | list", "reject('none') | list",
           "map(attribute='a', default=0) | list", "selectattr('a') | list", "trim('xy ')", "list | string",
           "safe + '<b>'", "string | length", "first | first"]
TESTS = ["defined", "undefined", "none", "true", "false", "boolean", "string", "number", "integer", "float",
         "mapping", "iterable", "sequence", "odd", "even", "divisibleby(3)", "divisibleby 2", "in [1, 'a']", "eq 1",
         "ne 1", "lt 2", "sameas none", "lower", "upper", "not none", "equalto 'a'", "greaterthan 1"]
METHODS = ["upper()", "lower()", "capitalize()", "title()", "strip()", "strip('xa ')", "lstrip()", "rstrip('d')",
           "split()", "split(' ')", "split('l', 1)", "split(None, 1)", "rsplit(' ', 1)", "rsplit(none, 1)",
           "splitlines()", "splitlines(true)", "startswith('H')", "endswith(('d', 'z'))", "find('o')", "rfind('o')",
           "count('l')", "count('')", "replace('l', 'L', 1)", "replace('', '|')", "join(['a', 'b'])", "join('xy')",
           "removeprefix('He')", "removesuffix('ld')", "isspace()", "isdigit()", "isalpha()", "index('a')"]
SLICES = ["[0]", "[-1]", "[9]", "[1:]", "[:-1]", "[::-1]", "[1:3]", "[::2]", "[5:0:-2]", "[-2:]", "[:100]",
          "[none:2]", "[3:1]", "[-100:100:3]", "['a']", ".a", ".0"]
SINGLE = [
    "1 < 2 < 3", "3 > 2 > 2", "not 1 in [2]", "2 ** 3 ** 2", "-2 ** 2", "1 if 0", "(1 if 0) is defined", "'a' 'b'",
    "1_000", "[1, 2][0] if true else x.y.z", "x.y", "x.y.z", "missing.attribute", "data.missing.attribute",
    "data.items is defined", "data.get('k')", "data.get('list')[1]", "data.get('nope', 5)", "data.keys() | list",
    "data.values() | list | length", "data.copy() == data", "data.pop('k')", "data.update({}) ", "[].append(1)",
    "[1].append is defined", "data.k.upper()", "data['k'][::-1]", "data.list.index(2)", "data.list.count(2)",
    "dict(a=1, b='x')", "dict({'a': 1}, a=2)", "dict([('q', 1)])", "namespace(a=1).a", "namespace({'a': 2})['a']",
    "namespace(a=1).b", "range(3)", "range(1, 9, 3) | list", "range(0)", "range(100001)", "range(2)[1]",
    "range(5)[1:3] | list", "{'a': 1}.items()", "{'a': 1}.keys()", "{'a': 1}.values()", "{'a': 1}.items() | length",
    "(1, 2) + (3,)", "[1] * 3", "'ab' * 2", "1/0", "1//0", "1%0", "1.5//0.4", "-7 // 2", "-7 % 3", "7 % -3",
    "-7.5 % 2", "0.1 + 0.2", "1e300 * 1e10", "2 ** -1", "2 ** 0.5", "1 == 1.0 == true", "none < 1", "'a' < 'B'",
    "[1, 2] < [1, 3]", "'x' in none", "1 in 'a'", "'items' in {'items': 1}", "missing in [1]", "1 in missing",
    "missing == missing2", "missing + 1", "missing | length", "missing | tojson", "missing | list", "missing ~ 'a'",
    "missing[0]", "missing()", "none()", "'a'()", "none | length", "5 | length", "true | string",
    "1 is defined and missing is not defined", "'x' is string is defined", "[3, 1, 2] | sort | first",
    "'a,b' | replace(',', '') | upper ~ '!'", "(1, 'a', none, 2.0, [true])", "{'a': {'b': 'it\\'s'}}",
    "'\"' ~ \"'\"", "['\"', \"'\", '\"\\'', '\\n\\\\']", "\"\\u00e9\\x41\\101\\q\"", "'%s' is string",
    "3 is divisibleby 3", "4 is even and 3 is odd",
    "[{'a': {'b': 1}}, {'a': {'b': 2}}] | map(attribute='a.b') | list", "[[1, 2], [3]] | map('first') | list",
    "[{'a': 1}, {'a': 2}, {}] | selectattr('a', 'gt', 1) | list",
    "[{'a': 1}, {}] | selectattr('a', 'defined') | list | length", "[1, 2, 3] | select('odd') | list",
    "[1, 2, 3] | reject('in', [1, 2]) | list", "['a', 'B'] | map('lower') | join(', ')",
    "[{'n': 2}, {'n': 1}] | sort(attribute='n') | map(attribute='n') | list", "'a' | unknown", "'a' is unknown",
    "foo(1)", "['a'] | map('unknown') | list", "1 | default(2) | default", "[1, 2] | join(attribute='x')",
    "{'b': 1, 'A': 2} | dictsort", "{'b': 1, 'A': 2} | dictsort(true)",
    "{'b': 1, 'a': 2} | dictsort(by='value', reverse=true)", "'x' | trim(chars='x')", "'x' | trim(unknown=1)",
    "'abc' | replace('b')", "[1, 2, 3][1:][0]", "data.list[-1]", "{1: 'a', 1.0: 'b', true: 'c'}", "{[1]: 2}",
    "{'a': 1} == {'a': 1.0}", "{'a': 1} == {'b': 1}", "[1] == (1,)", "1 == '1'", "'1' | int + 1",
    "'0x1A' | int(base=16)", "' 42 ' | int", "'1_0' | int", "'a' | int(-1)", "2.9 | int", "none | int", "[] | int",
    "'1e3' | float", "'nan' | float", "'inf' | int", "1 ~ 2", "1 + 2 ~ 3", "- 1 | string", "'-1' | int | string",
    "not none", "not [] and 'x'", "0 or '' or 'z'", "1 and [] and 2", "['é', 'z', 'a'] | sort", "'z' > 'é'",
    "'😀' > 'z'", "[none, 1] | sort", "raise_exception('no')", "raise_exception()", "loop",
    "lipsum is defined or true", "data.float", "data.big", "data.tiny", "data.nested | tojson", "data.nested",
    "data.float | tojson", "[1.0, 1e16, 1e-7, 123456789.123] | tojson", "'</script>' | tojson",
    "'\\u2028é😀' | tojson(ensure_ascii=true)", "[1, [2, {}], {'a': []}] | tojson(indent=4)",
    "{} | tojson(indent=1)", "{'b': 1, 'a': 2} | tojson(sort_keys=true)", "{1: 2} | tojson",
    "{none: 1, true: 2} | tojson", "range(2) | tojson", "(1, 2) | tojson", "[missing] | tojson", "[missing]",
    "[1, 2] | tojson(indent='--')", "'a' if missing else 'b'", "('a' if missing) ~ 'b'", "[1,2,]", "{'a': 1,}",
    "[,]", "1 +", "(1", "a b", "{{", "'open", "1 2", "x |", "x is", "[i for i in x]", "'a'[0:1:0]", "data[1:2]",
    "missing[1:2]", "'abc'['x']", "'abc'[1.0]", "[1]['0']", "data[none]", "true + true", "-true", "+true", "-'a'",
    "+'a'", "- missing", "9223372036854775807", "'a' in 'abc' in ['abc']", "'é' | length", "'é\u0301😀'[::-1]",
    "'日本語'[1:]", "[3, 1] | min", "['b', 'A'] | max", "[] | max", "[1, 2] | sum", "[[1], [2]] | sum(start=[])",
]
STATEMENTS = [
    "{% break %}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% set x.y = 1 %}",
    "{% set data.y = 1 %}", "{% if %}{% endif %}", "{% if 1 %}", "{% endif %}", "{% unknown %}", "{{ 1 }",
    "{# open", "{% set true = 1 %}", "{% set a %}{% endset %}[{{ a }}]",
    "{% macro m(a, a2) %}{{ a }}{{ a2 is defined }}{% endmacro %}{{ m(1) }}{{ m(a2=1) }}",
    "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}x{% endmacro %}{{ m(1) }}",
    "{% macro m() %}x{% endmacro %}{{ m(a=1) }}", "{% macro m() %}x{% endmacro %}{{ m() | upper }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% generation %}a{% endgeneration %}b",
    "{% for i in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% for c in 'aé' %}{{ c }}.{% endfor %}", "{% for i in missing %}x{% else %}e{% endfor %}",
    "{% set x = 1, 2 %}{{ x }}", "{{ 1, 2 }}",
    "{% set m = data.list | map('string') %}{{ m | first }}{{ m | list }}{{ m | list }}",
    "{% set m = [] | select %}{{ 'y' if m else 'n' }}", "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% for i in [1, 2] %}{% set last = i %}{% endfor %}{{ last }}", "{{- 1 -}} x {{- 2 }}",
    "a\n{% if 1 %}\nb\n{% endif %}\nc\n", "a\n  {%- if 1 -%}\n b\n {%- endif -%} \nc\n\n",
    "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}", "{{ {'a': {'b': 1}}.a.b }}",
    "{% set x %}a{% for i in [1] %}{% set x2 = i %}{% endfor %}{% endset %}{{ x }}{{ x2 }}",
    "{{ x if x is defined else 'u' }}{% set x = 1 %}{{ x }}",
    "{% for data in data.list %}{{ data }}{% endfor %}{{ data.k }}",
    "{% if data.list is sequence and data.list is not mapping %}s{% endif %}",
    "{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{%- set a=1 -%}\n\n{{a}}\n", "{% for i in [3, 1] | sort %}{{ i }}{{ ',' if not loop.last }}{% endfor %}",
    "{{ '\\n' }}{% if 1 %}  \n  {% endif %}\n", "\n\n{% if 1 %}\n{% endif %}\n\n",
]
DATA = {"k": "valué", "list": [1, 2, 3], "float": 0.1, "big": 1e22, "tiny": 1.5e-7, "nested": {"a": [True, None, {"é": "\"\n"}]}}


def cases():
    ours = itertools.product(TEMPLATES.items(), CONVERSATIONS, OPTIONS)
    theirs = itertools.product(published(), CONVERSATIONS, OPTIONS[1::2])
    for (name, template), conversation, options in itertools.chain(ours, theirs):
        yield name, template, {"messages": conversation, **SPECIAL, **options}
    expressions = [f"({a}) {op} ({b})" for a, op, b in itertools.product(OPERANDS, BINARY, OPERANDS)
                   if not (op == "%" and a.startswith("'"))]
    expressions += [f"({a}) | {name}" for a, name in itertools.product(VALUES, FILTERS)]
    expressions += [f"({a}) is {name}" for a, name in itertools.product(VALUES, TESTS)]
    expressions += [f"({a}).{name}" for a, name in itertools.product(TEXTS, METHODS)]
    expressions += [f"{op}({a})" for op, a in itertools.product(["-", "not "], VALUES)]
    # Not of a constant: jinja2 takes slices of those for undefined when they fail.
    slices = [f"{{% set v = {a} %}}{{{{ v{part} }}}}" for a, part in itertools.product(VALUES, SLICES)
              if "range" not in a]
    for source in [f"{{{{ {expression} }}}}" for expression in expressions + SINGLE] + slices + STATEMENTS:
        yield source, source, {"messages": [], "data": DATA}


def rendered(template: str, messages, tools=None, documents=None, add_generation_prompt=False, **variables) -> dict:
    try:
        texts, ranges = chat_template_utils.render_jinja_template(
            [messages], tools, documents, template, return_assistant_tokens_mask=True,
            add_generation_prompt=add_generation_prompt, **variables)
        texts[0].encode()
        return {"text": texts[0], "ranges": ranges[0]}
    except Exception:  # whatever Python raises, ours must refuse too
        return {}


def main() -> None:
    chat_template_utils.logger.warning_once = lambda *_: None  # most templates have no {% generation %}
    found = []
    for name, template, variables in cases():
        result = rendered(template, **variables)
        variables = {"tools": None, "documents": None, "add_generation_prompt": False, **variables}
        found.append({"name": name, "template": template, "variables": variables, **result})
    (pathlib.Path(sys.argv[1]) / "cases.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
