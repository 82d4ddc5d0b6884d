#!/usr/bin/env python3
"""Writes the seeds of fuzz_template into tests/fuzz/corpus/template: small templates that use each construct.

Usage: make_corpus_template.py [FOLDER]. The same files every time. The cases of
tests/unit/tokenizer/jinja_cases.jsonl go in as well, several in one file.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(HERE, "..", "unit", "tokenizer", "jinja_cases.jsonl")

SEEDS = {
    "chat": "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{% if m.content is string %}{{ m.content | trim }}"
            "{% elif m.content %}{% for p in m['content'] %}{{ p.text }}{% endfor %}{% endif %}"
            "{% for c in m.tool_calls or [] %}{{ c.function | tojson(indent=2) }}{% endfor %}{{ eos_token }}\n"
            "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "tools": "{%- for t in tools %}{%- for k, v in t.function.parameters.properties | dictsort %}{{ k }}: {{ v }}"
             "{%- endfor %}{{ t | tojson }}{%- endfor %}",
    "namespace": "{% set ns = namespace(l=[], n=0) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + loop.index %}"
                 "{% set _ = ns.l.append(m.role) %}{% endfor %}{{ ns.n }}{{ ns.l | join(', ') }}",
    "macros": "{% macro m(a, b='x') %}{{ a }}{{ varargs }}{{ kwargs }}{{ caller(1) if caller }}{% endmacro %}"
              "{% call(x) m(1, 2, 3, z=4) %}{{ x }}{% endcall %}{{ m(*[1], **{'b': 2}) }}",
    "recursive": "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}{{ loop(x) }}{% else %}"
                 "{{ loop.depth }}{{ x }}{% endif %}{% else %}none{% endfor %}",
    "macro_recursion": "{% macro f(n) %}{{ f(n - 1) if n > 0 }}{{ n }}{% endmacro %}{{ f(n) }}",
    "raise": "{% if messages[0].role != 'user' %}{{ raise_exception('roles: ' ~ messages | length) }}{% endif %}",
    "raw": "a {%- raw -%} {{ x }} {% endraw %}\n  {# c #}\n {%+ if 1 %}\n b{% endif -%}  c",
    "format": "{{ '%s %5.2f|%-4d|%x|%r' % (s, 1.5, n, 255, s) }}{{ '{:>5}{0[0]}{a!r:^9}{:,.2f}'.format(1, 2, a=s) }}",
    "slices": "{{ s[1:-1:2] }}{{ s[::-1] }}{{ messages[1].content[0].text[-3:] }}{{ [1, 2, 3][5:0:-1] }}",
    "numbers": "{{ 0x1F + 0b1 - 1_0 * 2.5e3 // 3 % 4 ** 2 / 5 }}{{ 1 < n <= 7 != 8 }}{{ -n | abs }}{{ 2.675 | round(2) }}",
    "escapes": "{{ '\\x41\\u00e9\\101\\q\\n' \"b\" }}{{ '<&>' | e ~ '<' | safe + '>' }}",
    "loop": "{% for x in range(9) if x is odd %}{{ loop.revindex }}{{ loop.last }}{{ loop.cycle('a', 'b') }}"
            "{{ loop.nextitem }}{{ loop.changed(x) }}{% if x > 4 %}{% break %}{% endif %}{% continue %}{% endfor %}",
    "time": "{{ strftime_now('%Y-%m-%d %H:%M') }}",
    "with": "{% with a = 1, b = n %}{% set c | upper %}{{ a }}{{ b }}x{% endset %}{{ c }}{% endwith %}"
            "{% filter indent(2) %}a\nb{% endfilter %}{% generation %}g{% endgeneration %}{% print 1 %}",
    "utf8": "{{ messages[1].content[0].text | upper }}{{ 'ÀÉ日本😀ß'[1:4] | lower | title }}{{ 'é'.center(9, '日') }}",
}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "corpus", "template")
    os.makedirs(folder, exist_ok=True)
    seeds = dict(SEEDS)
    groups = {}
    with open(CASES, encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            if "rendered" in case:
                groups.setdefault(case["group"], []).append(case["template"])
    for group, templates in groups.items():
        for i in range(0, len(templates), 6):
            seeds[f"cases_{group}_{i // 6}"] = "\n".join(templates[i:i + 6])
    for name, text in sorted(seeds.items()):
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
            file.write(text)


main()
