#!/usr/bin/env python3
"""Writes jinja_cases.jsonl: small templates, one construct or a few each, as Python's Jinja2 renders them.
usage: jinja_cases.py > jinja_cases.jsonl   (needs the jinja2 package, 3.1.6)
The environment is that of Hugging Face transformers, but for lists and dicts, which may be changed here:
templates in use append to their own lists. Each line: group, template, and "rendered" or "error".
"""
import copy
import datetime
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import SandboxedEnvironment

NOW = datetime.datetime(2025, 3, 9, 14, 5, 6)

# The variables of every case; jinja_cases_test.cc reads them from the first line of the output.
CONTEXT = {
    "messages": [{"role": "user", "content": "Hello Wörld"}, {"role": "assistant", "content": None, "n": 3},
                 {"role": "tool", "content": ["a", "b"], "n": 1.5}],
    "s": "Hello, World-wide  web\nsecond Line\n", "u": "Straße ÀÉ日本語 😀", "l": [3, 1, 2, "x"], "nums": [3, 1, 2],
    "d": {"b": 1, "a": [1, 2, {"c": None}], "C": True}, "f": 1.0, "big": 12345678901234567, "t": True, "none": None,
    "e": "",
    "users": [{"name": "bob", "age": 3, "x": {"y": 1}}, {"name": "Al", "age": 2, "x": {"y": 2}},
              {"name": "al", "age": 2, "x": {}}],
}

CASES = {
    "whitespace": [
        '{% raw %}{{ x }}{% endraw %}{%- raw -%}  a  {%- endraw -%} b',
        '  {% if true %}\n  x\n  {% endif %}\ny\n',
        '  {%+ if true %}\n  x\n  {% endif +%}\ny\n\n',
        'a  {{- 1 -}}  b\n  {#- c -#}  d {# e #}\nf',
        'a\n  {# comment #}\nb\n    {% set x = 1 %}  \nc',
        'a\r\nb\rc\n',
        "{{ 2.5|round }}{{ 3.5|round }}{{ 42.55|round(1) }}{{ 42.55|round(1,'floor') }}{{ 42.51|round(0,'ceil') }}{{ 5|round }}{{ 1234|round(-2) }}{{ 2.675|round(2) }}{{-5|abs}}{{-5.5|abs}}",
        '{%- for x in [1,2,3] -%}\n  {{ x }}\n{%- if not loop.last %}, {% endif -%}\n{%- endfor %}',
        '{%if true%}x{%endif%}{{1}}{{ 2}}{{3 }}{%-if true-%} y {%-endif-%} z',
        '{# a #}{# b\n #}\nx{#- c #} y {# d -#} z',
        'x\n\n{% if true %}\n\n  y\n\n{% endif %}\n\nz\n\n',
        '{%- set ns = namespace(found=false) -%}{%- for m in messages if not ns.found -%}{{ m.role }}{%- set ns.found = true -%}{%- endfor -%}',
        '{%- set ns = namespace(found=false) -%}{%- for m in messages if not ns.found -%}{{ m.role }}{{ loop.last }}{%- set ns.found = true -%}{%- endfor -%}',
    ],
    "expressions": [
        '{{ l }}|{{ d }}|{{ f }}|{{ big }}|{{ t }}|{{ none }}|{{ nope }}|{{ e }}|{{ (1,) }}|{{ () }}|{{ {} }}|{{ [] }}',
        '{{ 1e16 }} {{ 1e15 }} {{ 123456789.123 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1.5e300 }} {{ 100.0 }} {{ -0.0 }} {{ 1/3 }} {{ 2**0.5 }} {{ 2**10 }} {{ 2**-1 }}',
        '{{ 7//2 }} {{ -7//2 }} {{ 7%3 }} {{ -7%3 }} {{ 7.5//2 }} {{ -7.5%2 }} {{ 7/2 }} {{ 6/2 }} {{ 1+1.5 }} {{ true+true }}',
        "{{ not true or true and false }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 in [1,2] }} {{ 'el' in 'hello' }} {{ 'a' not in d }} {{ 1 == 1.0 }} {{ true == 1 }} {{ [1]==[1] }} {{ (1,)==[1] }}",
        "{{ dict(a=1,b=2) }}{{ dict({'x':1},y=2) }}{{ dict([('a',1)]) }}{{ namespace(a=1) }}",
        "{{ d.nope }}|{{ d['nope'] }}|{{ l[99] }}|{{ none.x }}|{{ 'a'.x }}|{{ l['x'] }}|{{ d[1] }}|{{d[[1]]}}",
        "{{ messages[0]['content'] }}{{ messages[0].content }}{{ messages.0.role }}{{ messages[-1].content[0] }}{{ messages[:1] }}",
        "{{ 'x' * 3 }}{{ 3 * 'x' }}{{ [1] * 2 }}{{ 'x' * -1 }}{{ (1,) * 2 }}",
        '{{ [\'a\', "it\'s", \'"q"\', \'a\\\'b"c\', \'n\\nl\', \'é\', \'\\x07\', \'\\u200b\', \'\\u2028\', \'😀\'] }}',
        '{{ 0x1F }}{{ 0b101 }}{{ 0o17 }}{{ 1_000 }}{{ 1e3 }}{{ 1.5E-3 }}{{ 00 }}',
        "{{ '\\x41\\u00e9\\101\\q' }}{{ 'a\\\nb' }}",
        '{{ nope in [nope2] }}',
        '{{ \'{{\' }}{{ \'}}\' }}{{ \'{%\' }}{{ "%}" }}',
        "{{ {'a': {'b': {'c': 1}}}.a.b.c }}{{ {'a':{'b':1}}}}",
        "{{ [1, 2, 3, ] }}{{ {'a': 1,} }}{{ (1, 2,) }}{{ dict(a=1,) }}",
        '{{ 9223372036854775807 }}{{ -9223372036854775807 }}',
        '{{ d.__class__ }}',
        "{{ true and none }}{{ false or 0 }}{{ 'a' and 'b' }}{{ [] or {} }}",
    ],
    "statements": [
        '{% set x %}hello {{ 1 }}{% endset %}{{ x }}{% set y | upper | trim %} abc {% endset %}[{{ y }}]',
        '{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}',
        '{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}',
        "{% filter upper %}abc{{ 'def' }}{% endfilter %}{% filter replace('a','b')|upper %}aaa{% endfilter %}",
        '{% if a is defined %}1{% elif t %}2{% else %}3{% endif %}',
        "{% set x = {} %}{% set _ = x.update({'a':1}) %}{% set _ = x.update(b=2) %}{{ x }}{{ x.pop('a') }}{{ x }}{{ x.setdefault('c', 3) }}{{ x }}{{ x.pop('q', 9) }}{% set _ = x.clear() %}{{ x }}",
        '{% set x = [] %}{% set _ = x.append(1) %}{% set _ = x.extend([2,3]) %}{% set _ = x.insert(0, 9) %}{{ x }}{{ x.pop() }}{{ x.pop(0) }}{{ x }}{{ x.index(2) }}{{ x.count(1) }}{% set _ = x.reverse() %}{{ x }}{% set _ = x.sort() %}{{ x }}{% set _ = x.remove(1) %}{{ x }}{% set _ = x.append(x) %}',
        "{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set _ = c.reset() %}{{ c.next() }}{% set j = joiner('|') %}{{ j() }}{{ j() }}",
        "{% set x = 'a' 'b' %}{{ x }}{{ 'a' 'b'|upper }}",
        '{% block foo %}hi {{ s|length }}{% endblock %}{% block bar scoped %}x{% endblock bar %}',
        '{% print 1, 2 %}',
        '{% generation %}gen{{ 1 }}{% endgeneration %}',
        '{% set x = [1,2,3] %}{{ x is iterable and x is not string and x is not mapping }}',
        "{% set g = nums|map('string') %}{{ g|list }}{{ g|list }}",
        "{% if 'a' == 'a' and not ('b' == 'c') or none %}yes{% endif %}",
        "{% set m = messages[0] %}{{ m['content'] | trim | length }}{{ m.content.split(' ')[-1] }}{{ m.content.split('o')|last }}",
        "{% set x = ' a ' | trim %}{% set y = x ~ '!' if x else '' %}{{ y }}",
    ],
    "loops": [
        "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.changed(x) }}{{loop.depth}} {% endfor %}",
        '{% for x in [] %}a{% else %}empty{% endfor %}{% for x in [1] %}a{% else %}empty{% endfor %}',
        '{% for x in range(10) %}{% if x == 3 %}{% continue %}{% endif %}{% if x == 6 %}{% break %}{% endif %}{{ x }}{% endfor %}',
        '{% for x in range(10) if x is odd %}{{ x }}{{ loop.index }}/{{ loop.length }}{{loop.last}} {% endfor %}',
        '{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}',
        '{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}{{ d|dictsort(true) }}{{ d|items|list }}',
        '{% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}',
        "{% set ns = namespace(a=1, b=[]) %}{% for i in [1,2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{{ ns['a'] }}",
        "{% for g in users|groupby('age') %}{{ g.grouper }}:{{ g.list|map(attribute='name')|join(',') }};{% endfor %}{% for g, i in users|groupby('name') %}{{ g }}{{ i|length }}{% endfor %}",
        '{% for x in nope %}{{ x }}{% endfor %}ok',
        '{% for m in messages recursive %}{{ m.role }}{% if m.kids %}{{ loop(m.kids) }}{% endif %}{% endfor %}',
        '{% for x in [[1,[2]],[3]] recursive %}{% if x is number %}{{ x }}@{{ loop.depth }}{% else %}({{ loop(x) }}){% endif %}{% endfor %}',
        '{% for a in [1,2] %}{% for b in [3,4] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}',
        '{% for a in [1,2] %}{% set outer = loop %}{% for b in [3,4] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}',
        '{{ loop }}|{% for x in [1] %}{{ loop is defined }}{% endfor %}',
        "{% for x in [3,1] | sort %}{{ x }}{% endfor %}{% for x in 'abc' %}{{ x }},{% endfor %}{% for a, b in [(1,2),(3,4)] %}{{ a+b }}{% endfor %}{% for a in 1,2,3 %}{{a}}{% endfor %}",
        '{% set items = [1,2] %}{% for item in items[:-1] %}{{ item }}{% endfor %}{{ items[-1] }}',
    ],
    "macros": [
        "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1,c=3) }}{{ m(1,2,3,4,5,z=1) }}{{ m() }}{{ m.name }}{{ m.arguments }}",
        '{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) m(5) %}[{{ y }}]{% endcall %}',
        '{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body{% endcall %}{{ m }}',
        '{% macro fac(n) %}{{ n * fac(n-1)|int if n > 1 else 1 }}{% endmacro %}{{ fac(10) }}',
        '{% macro a() %}{% set z = 5 %}{{ z }}{{ q }}{% endmacro %}{% set q = 7 %}{{ a() }}{{ z is defined }}',
        '{% set q = 1 %}{% macro a() %}{{ q }}{% endmacro %}{% set q = 2 %}{{ a() }}',
        '{% for i in [1,2] %}{% macro a() %}{{ i }}{% endmacro %}{{ a() }}{% endfor %}',
        '{% set ns = namespace() %}{% for i in [1,2] %}{% if loop.first %}{% macro a() %}{{ i }}{% endmacro %}{% set ns.f = a %}{% endif %}{% endfor %}{{ ns.f is callable }}',
        '{% macro f(caller=none) %}{{ caller }}{% endmacro %}{{ f() }}',
    ],
    "filters": [
        '{{ s|upper }}|{{ s|lower }}|{{ s|title }}|{{ s|capitalize }}|{{ s|trim }}|{{ s|length }}',
        "{{ [1,2,3][1:] }} {{ [1,2,3][::-1] }} {{ [1,2,3][-2:] }} {{ 'hello'[1:3] }} {{ 'hello'[::2] }} {{ 'hello'[10:] }} {{ 'hello'[-3:-1] }} {{ (1,2,3)[:2] }} {{ range(5)[1:3]|list }} {{[1,2,3][5:1:-1]}}",
        "{{ users|map(attribute='name')|list }}{{ users|map(attribute='x.y', default='?')|join(',') }}{{ users|map('length')|list }}{{ ['a','b']|map('upper')|join }}",
        "{{ users|selectattr('age','equalto',2)|map(attribute='name')|list }}{{ users|rejectattr('age','gt',2)|list|length }}{{ users|selectattr('x.y')|list|length }}{{ l|select('string')|list }}{{ l|reject('number')|list }}{{ [0,1,'']|select|list }}",
        "{{ users|sort(attribute='age,name')|map(attribute='name')|list }}{{ nums|sort }}{{ nums|sort(reverse=true) }}{{ ['b','A','c']|sort }}{{ ['b','A','c']|sort(case_sensitive=true) }}{{users|sort(attribute='name')|map(attribute='name')|list}}",
        "{{ nums|first }}{{ nums|last }}{{ []|first }}{{ 'abc'|first }}{{ 'abc'|last }}{{ d|first }}{{ nums|sum }}{{ users|sum(attribute='age') }}{{ nums|min }}{{ nums|max }}{{ users|max(attribute='name') }}{{ ['b','A']|min }}",
        "{{ [1,2,2,1,'a','A']|unique|list }}{{ nums|reverse|list }}{{ 'abc'|reverse }}{{ nums|batch(2)|list }}{{ nums|batch(2,'x')|list }}{{ range(7)|slice(3)|list }}{{ range(7)|slice(3,'x')|list }}",
        "{{ '42'|int }}{{ '4.7'|int }}{{ 'x'|int }}{{ 'x'|int(5) }}{{ '0x1f'|int(base=16) }}{{ 3.9|int }}{{ -3.9|int }}{{ none|int }}{{ ' 12 '|int }}{{ '1_000'|int }}{{ true|int }}{{[]|int}}",
        "{{ '4.5'|float }}{{ 'x'|float }}{{ 3|float }}{{ '1e3'|float }}{{ none|float(2) }}{{'inf'|float}}{{'nan'|float}}",
        "{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2,true) }}|{{ 'a\n\nb\n'|indent(2,blank=true) }}|{{ 'a\nb'|indent('>>') }}|{{ ''|indent }}",
        "{{ 'aXbX'.replace('X','-') }}{{ 'aXbX'.replace('X','-',1) }}{{ 'abc'.replace('','-') }}{{ 'abc'.find('c') }}{{ 'abc'.find('z') }}{{ 'abcabc'.rfind('b') }}{{ 'abcabc'.index('c') }}{{ 'aaa'.count('a') }}{{ 'aaa'.count('') }}{{u.find('日')}}{{'ab'|replace('a',1)}}",
        "{{ 'a-b'.partition('-') }}{{ 'a-b-c'.rpartition('-') }}{{ ','.join(['a','b']) }}{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'ab'.center(7) }}|{{ 'abc'.center(6,'*') }}|{{ 'ab'.ljust(5,'.') }}{{ 'ab'.rjust(5) }}{{ '-42'.zfill(6) }}{{'x'|center(5)}}|",
        "{{ '%s-%d-%5.2f|%-5s|%05d|%x|%r' % ('a', 3, 1.5, 'b', 42, 255, 'q') }}{{ '%(a)s' % {'a': 1} }}{{ '100%%' % () }}{{ '%s' % 'x' }}{{ '%s %s'|format(1,2) }}{{ '%(x)s'|format(x=1) }}",
        "{{ d.get('a') }}{{ d.get('z') }}{{ d.get('z', 5) }}{{ d.keys() }}{{ d.values() }}{{ d.items() }}{{ d.keys()|list }}{{ d.copy() }}",
        '{{ range(5)|list }}{{ range(1,5)|list }}{{ range(5,0,-2)|list }}{{ range(0)|list }}{{ range(3) }}{{ range(1,4) }}{{ range(3)|length }}{{ range(5)[2] }}',
        "{{ (messages|selectattr('role','equalto','zzz')) and 'truthy' }}{{ messages|selectattr('role','equalto','user')|first }}",
        "{{ s|truncate(10) }}{{ s|truncate(10,true) }}{{ s|truncate(10,true,'!') }}{{ s|wordcount }}{{ 'foo bar'|urlencode }}{{ {'a':'b c','d':'/'}|urlencode }}{{ '<p>a  <b>b</b></p>'|striptags }}",
        '{{ 1000|filesizeformat }}{{ 1|filesizeformat }}{{ 123456789|filesizeformat }}{{ 123456789|filesizeformat(true) }}{{ 500|filesizeformat }}{{ 1048576|filesizeformat(true) }}',
        "{{ none|default('x') }}{{ nope|default('x') }}{{ ''|default('x', true) }}{{ nope|d }}{{ none|default('x', boolean=true) }}",
        "{{ nope|upper }}{{ nope|trim }}{{ nope|length }}{{ nope|list }}{{ nope|join }}{{ nope|string }}{{ nope|first }}{{ nope|replace('a','b') }}|{{nope|items|list}}",
        "{{ [1,2,3]|join(', ') }}{{ [1,none,'a']|join('-') }}{{ users|join('|', attribute='name') }}{{ 'abc'|join('-') }}",
        "{{ [1,2,3].length }}{{ [1,2,3]|length > 2 }}{{ 'abc'|length == 3 and 'x' }}",
        '{{ -1|abs }}{{ -(1) }}{{ +1 }}{{ - 5 + 3 }}{{ not 1 == 2 }}{{ 1 - 1 }}{{ 1 -1 }}',
        "{{ messages | length }}{{ messages|map(attribute='role')|unique|join(' ') }}",
        "{{ '' in 'abc' }}{{ [] in [[]] }}{{ 1 in {1:2} }}{{ 'x' in d.keys() }}{{ 'b' in d }}{{ 'user' in messages|map(attribute='role') }}",
        "{{ users|map(attribute='nope')|list }}",
        "{{ ''.join(nums|map('string')) }}",
        '{{ 3.0 == 3 }}{{ 3.0|int }}{{ 10 / 5 }}{{ (10 / 5)|int }}{{ 10 // 5.0 }}{{ 1e3|int }}',
        '{{ u|upper }}|{{ u|lower }}|{{ u|title }}|{{ u|capitalize }}|{{ u.title() }}|{{ u|length }}|{{u[3]}}|{{u[-2:]}}|{{u[::-1]}}|{{u.swapcase()}}',
    ],
    "tests": [
        '{{ \'<a href="x">\'|e }}{{ \'<b>\'|escape|e }}{{ \'<b>\'|safe|e }}{{ \'<b>\'|safe + \'<i>\' }}{{ \'<i>\' + \'<b>\'|safe }}{{ \'<b>\'|forceescape }}{{ \'<b>\'|safe is escaped }}',
        "{{ 1 is number }}{{ 1 is integer }}{{ 1.0 is float }}{{ true is integer }}{{ true is number }}{{ true is boolean }}{{ 's' is string }}{{ d is mapping }}{{ l is sequence }}{{ 's' is sequence }}{{ d is sequence }}{{ d is iterable }}{{ 1 is iterable }}{{ none is none }}{{ nope is undefined }}{{ nope is none }}{{ range is callable }}{{ 1 is callable }}",
        "{{ 3 is odd }}{{ 4 is even }}{{ 6 is divisibleby 3 }}{{ 6 is divisibleby(4) }}{{ 1 is eq 1 }}{{ 1 is ne(2) }}{{ 1 is lt 2 }}{{ 2 is ge 2 }}{{ 1 is in [1] }}{{ 'a' is lower }}{{ 'A' is upper }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ none is sameas none }}{{ 1 is not number }}{{ 'upper' is filter }}{{ 'odd' is test }}",
        "{{ 1 is defined and 2 is defined }}{{ x is defined or 1 }}{{ (x is not defined) ~ 'a' }}{{ 'a' is string|string }}",
        "{{ nope == nope2 }}{{ nope == none }}{{ nope == '' }}{{ nope is eq nope2 }}{{ 'x' in nope }}{{ not nope }}{{ nope or 'y' }}{{ nope ~ 'z' }}",
        "{{ users[0].x.y }}{{ users[0]['x']['y'] }}{{ users|attr('x') }}{{ 'abc'|attr('upper') is callable }}{{ d|attr('b') is defined }}",
        "{{ foo if bar is defined else 'none' }}{{ 'a' if true else 'b' if false else 'c' }}",
        "{{ 'a' if not messages[1].content else 'b' }}{{ messages[1].content is none }}{{ messages[1]['content'] or 'empty' }}",
    ],
    "methods": [
        "{{ 'a,b,c'.split(',') }}{{ 'a b  c '.split() }}{{ 'a,b,c'.split(',',1) }}{{ 'a,b,c'.rsplit(',',1) }}{{ ' a b c'.rsplit(None,1) }}{{ ' a b c '.split(None,1) }}{{ 'a\nb\r\nc'.splitlines() }}{{ 'a\nb'.splitlines(true) }}{{ ''.split() }}{{ ''.split(',') }}{{'a  b c d'.rsplit(None,2)}}",
        "{{ 'xxabcxx'.strip('x') }}{{ 'xxabc'.lstrip('x') }}{{ 'abcxx'.rstrip('x') }}{{ '  a '.strip() }}|{{ '\u3000a\xa0'.strip() }}|{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x','c')) }}{{ 'abc'.startswith('b',1) }}",
        "{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ 'AB'.isupper() }}{{ 'ab'.islower() }}{{ '  '.isspace() }}{{ '1'.isnumeric() }}{{ 'é'.isalpha() }}{{ '日本'.isalpha() }}{{ '½'.isnumeric() }}{{ '²'.isdigit() }}{{'A1'.isupper()}}",
        "{{ '{} {}'.format(1, 'a') }}{{ '{0}{1}{0}'.format('a','b') }}{{ '{a}'.format(a=1) }}{{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:+d}'.format('a','b','c',42,3.14159,1234567,255,5) }}{{ '{{}}'.format() }}{{ '{!r}'.format('a') }}{{ '{0[a]} {0[b]}'.format({'a':1,'b':2}) }}{{'{:e}'.format(12345.678)}}{{'{:%}'.format(0.25)}}{{'{:*^9}'.format('x')}}{{'{:g}'.format(1e10)}}{{'{:.3}'.format(3.14159)}}{{'{:.3}'.format('abcdef')}}",
        "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j') }}{{ strftime_now('%d %b %Y') }}{{strftime_now('')}}{{strftime_now('%-d %f')}}",
        "{{ '%.3f' % 2.0005 }}{{ '%5s|%-5s|%s' % ('a','b',none) }}{{ '%e' % 12345.678 }}{{ '%g' % 0.0001 }}{{ '%c' % 'x' }}{{ '%o' % 8 }}{{ '%+d % d' % (1, 2) }}{{ '%*d' % (5, 42) }}{{'%i' % 3.99}}{{'%05.1f' % -2.5}}",
        '{{ l.append(5) }}{{ l }}',
        "{{ 'abc'.split(sep='b') }}{{ 'a b c'.split(maxsplit=1) }}",
        "{{ 'A' 'b'.lower() }}{{ 'a'.__class__ }}",
    ],
    "json": [
        "{{ d|tojson }}|{{ d|tojson(indent=2) }}|{{ d|tojson(sort_keys=true) }}|{{ u|tojson }}|{{ u|tojson(ensure_ascii=true) }}|{{ l|tojson(separators=(',',':')) }}",
        '{{ \'a"b\\\\c\\n\\t\\x01/<>&\\u2028\'|tojson }}',
        "{{ d|tojson(indent='--') }}{{ []|tojson(indent=2) }}{{ {}|tojson(indent=0) }}{{ [1,[2]]|tojson(indent=0)}}",
        '{{ messages|tojson }}{{ messages[0]|tojson(indent=4) }}',
        "{{ {'a': 1}['a'] }}{{ {1: 'x'}[1] }}{{ {1: 'x'}[1.0] }}{{ {true: 2}[1] }}{{ {(1,2): 3}[(1,2)] }}{{ {none: 1} }}{{ {1: 2}|tojson }}{{ {none: 1, true: 2, 1.5: 3}|tojson }}",
        "{{ (1,2,3)|tojson }}{{ [true,false,none]|tojson }}{{ 1.0|tojson }}{{ 1e100|tojson }}{{ 'é😀'|tojson(ensure_ascii=True) }}",
    ],
    "errors": [
        "{{ -2**2 }} {{ 2**3**2 }} {{ 1 if false }} {{ 1 + 2 ~ 3 * 4 }} {{ 'a' ~ 1 ~ none ~ nope ~ 1.0 }}",
        '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1,2) }}',
        '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}',
        '{% set a, b = 1 %}',
        '{% set a, b = [1] %}',
        '{{ l|sort }}',
        "{{ '%s' % (1,2) }}",
        "{{ '%s %s' % 1 }}",
        "{{ '%d' % 'a' }}",
        "{{ raise_exception('boom') }}",
        '{{ nope.x }}',
        '{{ nope + 1 }}',
        '{{ nope() }}',
        '{{ d.nope.x }}',
        "{{ 'a' + 1 }}",
        "{{ 1 + 'a' }}",
        '{{ [1] + (2,) }}',
        "{{ 1 < 'a' }}",
        '{{ none < 1 }}',
        '{{ 1/0 }}',
        '{{ 1 % 0 }}',
        '{{ none|length }}',
        '{{ 5|length }}',
        '{% for x in 5 %}{% endfor %}',
        '{% for x in none %}{% endfor %}',
        "{{ 'a'|nofilter }}",
        "{{ 'a' is notest }}",
        "{% if false %}{{ 'a'|nofilter }}{% endif %}ok",
        '{{ 1 if }}',
        '{{ }}',
        '{% if %}{% endif %}',
        '{% if true %}',
        '{% endif %}',
        '{{ (1 }}',
        "{{ 'abc }}",
        '{{ a b }}',
        '{% foo %}',
        '{{ x.5.y }}',
        "{{ nums|map('string')|length }}",
        '{{ nope|tojson }}',
        '{{ nope|int }}',
        "{{ nope in 'abc' }}",
        "{{ [d, l] == [d, l] }}{{ [1,2] < [1,3] }}{{ (1,2) < (1,2,3) }}{{ 'a' < 'b' }}{{ 'é' > 'z' }}{{ [1] < ['a'] }}",
        '{{ ns }}{% set ns = 1 %}{{ ns }}{% set ns.x = 1 %}',
        '{% call(a, b=2) mm() %}{% endcall %}',
        "{{ users|map('upper', 'x')|list }}",
        '{{ users|map()|list }}',
        "{{ 'abc'.upper(1) }}",
        "{{ ''.join(nums) }}",
    ],
}


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main():
    env = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    print(json.dumps({"context": CONTEXT}, ensure_ascii=False))
    for group, templates in CASES.items():
        for template in templates:
            record = {"group": group, "template": template}
            try:
                context = copy.deepcopy(CONTEXT)
                record["rendered"] = env.from_string(template).render(**context, tools=None, documents=None)
            except Exception as e:
                record["error"] = f"{type(e).__name__}: {e}"
            print(json.dumps(record, ensure_ascii=False))


main()
