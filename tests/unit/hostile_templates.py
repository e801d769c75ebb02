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
    "replacement in a list": "{{ [('a' * 300000)]|replace('a', 'b' * 9000) }}",
    "tests": "{% set L = range(60000)|list %}{{ range(100000, 200000)|select('in', L)|list }}",
    "many fields": LONG + "{{ ('%(a)s' * 100000) % {'a': long} }}",
    "separator": LONG + "{{ range(99999)|join(long) }}",
    "separator, method": LONG + "{{ long.join(range(99999)|map('string')) }}",
    "indentation after carriage returns": "{{ ('\\r' * 100000)|indent(100000, true, true) }}",
    "indentation of deep JSON": "{% set box = namespace(x=['a'] * 20000) %}{% for i in range(100) %}"
    "{% set box.x = [box.x] %}{% endfor %}{{ box.x|tojson(indent=16) }}",
    "slices": LONG + "{% set x = [" + "long[1:], " * 9000 + "] %}",
    "indentation": "{{ 'a\\n'|indent(10000000000, true) }}",
}
NOT_AVAILABLE = {  # refused, because no published chat template needs it
    "width of %": "{{ '%10000000000s' % 'a' }}",
    "width of the filter format": "{{ '%10000000000s'|format('a') }}",
    "width that is an argument": "{{ '%*d' % (10000000000, 1) }}",
    "precision": "{{ '%.1000000000f' % 1.0 }}",
    "width of a field": "{{ '{:>10000000000}'.format('a') }}",
    "width of a field, by another name": "{{ 'x{:>10000000000}'['format']('a') }}",
    "width of a field that is a field": "{{ '{a:>{b}}'.format_map({'a': 1, 'b': 10000000000}) }}",
    "center": "{{ 'a'|center(10000000000) }}",
    "center, method": "{{ 'a'.center(10000000000) }}",
    "center of each": "{{ [1, 2]|map('center', 10000000000)|list }}",
    "zeros": "{{ '1'.zfill(10000000000) }}",
    "tabs": "{{ ('\\t' * 1000).expandtabs(1000000000) }}",
    "fill": "{{ [1]|batch(10000000000, 0)|list }}",
    "translation": "{{ 'a'.translate({97: 'b'}) }}",
    "a rounded number": "{{ 1|round(999999999, 'ceil') }}",
    "bytes of a number": "{{ (1).to_bytes(4000000000, 'big') }}",
    "keys": "{{ dict.fromkeys(range(99999)) }}",
    "a width in a test": "{{ '%9999999999d' is odd }}",
    "a width in another test": "{{ ['%9999999999d']|select('divisibleby', 5)|list }}",
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
    "many lazy filters": "{{ range(99999)" + "|select" * 90 + "|list|length }}",
    "copies of a long text": LONG + "{% for i in range(99999) %}{% set x = long[1:] %}{% endfor %}",
}
