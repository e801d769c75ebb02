"""Chat templates that would take much memory or time, and a conversation for them."""

from __future__ import annotations

TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho, <b> & {x} 100%"}]
GROW = (
    "{{% set box = namespace(x={0}) %}}{{% for i in range(60) %}}{{% set box.x = {1} %}}{{% endfor %}}"
    "{{{{ box.x{2} }}}}"
)
LONG = "{% set long = 'a' * 1000000 %}"
TOO_MUCH = {  # refused while the template is rendered, before the memory fills
    "literal text in a loop": "{% for i in range(99999) %}" + "y" * 9999 + "{% endfor %}",
    "literal text in a macro": "{% macro m() %}" + "y" * 9999 + "{% endmacro %}"
    "{% for i in range(99999) %}{% set x = m() %}{% endfor %}",
    "long text": "{{ 'a' * 10**10 }}",
    "long text, number first": "{{ 10000000000 * 'a' }}",
    "long list": "{{ ([1] * 10**10)|length }}",
    "large power": "{{ 10 ** 10000000 }}",
    "repeated squares": GROW.format("9", "box.x * box.x", ""),
    "doubling by +": GROW.format("'a'", "box.x + box.x", "|length"),
    "doubling by ~": GROW.format("'a'", "box.x ~ box.x", "|length"),
    "doubling by a method": GROW.format("'a'", "box.x.replace('a', 'aa')", "|length"),
    "doubling by a filter": GROW.format("'a'", "box.x|replace('a', 'aa')", "|length"),
    "doubling lists": GROW.format("[1]", "[box.x, box.x]", ""),
    "doubling tuples": GROW.format("(1,)", "(box.x, box.x)", "|tojson"),
    "replacement": LONG + "{{ long|replace(new=long, old='a') }}",
    "replacement of nothing": LONG + "{{ long.replace('', long) }}",
    "separator": LONG + "{{ range(99999)|join(long) }}",
    "separator, method": LONG + "{{ long.join(range(99999)|map('string')) }}",
    "width of %": "{{ '%10000000000s' % 'a' }}",
    "width of the filter format": "{{ '%10000000000s'|format('a') }}",
    "width that is an argument": "{{ '%*d' % (10000000000, 1) }}",
    "precision": "{{ '%.1000000000f' % 1.0 }}",
    "width of a field": "{{ '{:>10000000000}'.format('a') }}",
    "width of a field, by another name": "{{ 'x{:>10000000000}'['format']('a') }}",
    "width of a field that is a field": "{{ '{a:>{b}}'.format_map({'a': 1, 'b': 10000000000}) }}",
    "many fields": LONG + "{{ ('%(a)s' * 100000) % {'a': long} }}",
    "center": "{{ 'a'|center(10000000000) }}",
    "center, method": "{{ 'a'.center(10000000000) }}",
    "center of each": "{{ [1, 2]|map('center', 10000000000)|list }}",
    "zeros": "{{ '1'.zfill(10000000000) }}",
    "tabs": "{{ ('\\t' * 1000).expandtabs(1000000000) }}",
    "indentation": "{{ 'a\\n'|indent(10000000000, true) }}",
    "fill": "{{ [1]|batch(10000000000, 0)|list }}",
    "translation": LONG + "{{ long.translate({97: long}) }}",
}
SLOW = {
    "doubling dictionaries": GROW.format("{}", "dict(a=box.x, b=box.x)", " ~ ''"),
    "doubling namespaces": GROW.format("1", "namespace(a=box.x, b=box.x)", "|string"),
    "a namespace in itself": "{% set box = namespace() %}{% set box.x = box %}{{ box }}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "loops that write nothing": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops whose condition fails": "{% for i in range(99999) %}{% for j in range(99999) if j < 0 %}{% endfor %}"
    "{% endfor %}",
    "loops in filters": "{% for i in range(99999) %}{% set x = range(99999)|map('string')|list %}{% endfor %}",
    "macros that call themselves": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    "{{ m(60) }}",
    "recursive loops": "{% for x in [1, 2] recursive %}{% if loop.depth < 60 %}{{ loop([1, 2]) }}{% endif %}"
    "{% endfor %}",
    "copies of a long text": LONG + "{% for i in range(99999) %}{% set x = long[1:] %}{% endfor %}",
}
