"""Chat templates: work, memory and output are bounded, errors have two lines, usual templates are rendered."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from glassformer.base.errors import GlassError
from glassformer.text.chat_template import ChatTemplate
from tests.unit.hostile_templates import NOT_AVAILABLE, SLOW, TALK, TOO_MUCH

INVALID = {  # refused when the template is compiled
    "a break outside a loop": "{% break %}",
    "a continue outside a loop": "{% continue %}",
    "deep brackets": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "deep lists": "{{ " + "[" * 3000 + "1" + "]" * 3000 + " }}",
    "deep dictionaries": "{{ " + "{1:" * 3000 + "1" + "}" * 3000 + " }}",
    "many operators": "{{ " + "not " * 5000 + "1 }}",
    "many filters": "{{ 'a'" + "|trim" * 5000 + " }}",
    "deep conditions": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "a long text": "x" * 100_001,
    "deep loops": "{% for m in messages %}" * 25 + "{% endfor %}" * 25,
}
FAILING = {
    "endless recursion": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "fails: RecursionError"),
    "indentation of JSON": ("{{ [[1]]|tojson(indent=10000000000) }}", "at most 16"),
    "width of a date": ("{{ strftime_now('%1000000000Y') }}", "is not allowed"),
    "a file": ("{% include '/etc/passwd' %}", "fails: TypeError"),
    "a long refusal": ("{{ raise_exception('a' * 1000000) }}", "refuses this conversation: aaa"),
}


@pytest.mark.parametrize("name", INVALID)
def test_templates_that_cannot_be_compiled_are_refused(name: str) -> None:
    with pytest.raises(GlassError, match=r"the chat template (is not valid: |has 100,001 characters)") as refused:
        ChatTemplate(INVALID[name])
    assert len(str(refused.value).splitlines()) == 2


@pytest.mark.parametrize("name", TOO_MUCH)
def test_templates_that_grow_are_refused(name: str) -> None:
    with pytest.raises(GlassError, match="fails: TooMuchWorkError: it needs too many steps or too long texts"):
        ChatTemplate(TOO_MUCH[name]).render(TALK, True, "", "")


@pytest.mark.parametrize("name", NOT_AVAILABLE)
def test_what_published_templates_do_not_use_is_refused(name: str) -> None:
    with pytest.raises(GlassError, match=r"not available|No filter named|invalid literal for int") as refused:
        ChatTemplate(NOT_AVAILABLE[name]).render(TALK, True, "", "")
    assert len(str(refused.value).splitlines()) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("name", SLOW)
def test_templates_that_run_long_are_refused(name: str) -> None:
    with pytest.raises(GlassError, match="fails: TooMuchWorkError"):
        ChatTemplate(SLOW[name]).render(TALK, True, "", "")


def test_comparisons_obey_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.text.template_limits.MOST_SECONDS", 0.2)
    lists = "{% set L = range(99999)|list %}{% set M = range(99999)|list %}"
    with pytest.raises(GlassError, match="fails: TooMuchWorkError"):
        ChatTemplate(lists + "{{ L" + " == M == L" * 1000 + " }}").render(TALK, True, "", "")


@pytest.mark.parametrize("name", FAILING)
def test_templates_that_fail_are_refused(name: str) -> None:
    source, problem = FAILING[name]
    with pytest.raises(GlassError, match=problem) as refused:
        ChatTemplate(source).render(TALK, True, "", "")
    assert len(str(refused.value)) < 400


USUAL = {
    "{{ messages|map(attribute='role')|join(', ') }}": "user, assistant",
    "{{ messages[1].content|tojson }}": '"Ho, <b> & {x} 100%"',
    "{{ messages[1:]|tojson(indent=1) }}": '[\n {\n  "role": "assistant",\n  "content": "Ho, <b> & {x} 100%"\n }\n]',
    "{{ messages[0]['content'].upper().replace('I', 'O') ~ 1 ~ 'a '|trim }}": "HO1a",
    "{% if 'H' in messages[0].content and 'x' not in messages[0] %}{{ ('a\nb'|indent(2))[1:] }}{% endif %}": "\n  b",
    "{{ messages|rejectattr('role', 'in', ['user'])|map(attribute='role')|first }}{{ 3 is odd }}": "assistantTrue",
    "{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}{{ v }}{% endfor %}{{ {'a': [1]}.get('a')|length }}": "a2b11",
    "{% generation %}{{ messages[-1].content.startswith('Ho') }}{% endgeneration %}": "True",
    "{% for x in [1, [2]] recursive %}{{ loop(x) if x is iterable else x }}{{ loop.cycle('a', 'b') }}{% endfor %}": (
        "1a2ab"
    ),
    "{% set box = namespace(n=0) %}{% for m in messages if m.role == 'user' %}{% set box.n = box.n + loop.index %}"
    "{% endfor %}{{ box.n }}": "1",
    "{% macro of(m, mark='!') %}{{ m.content + mark }}{% endmacro %}{{ of(messages[0], mark='?') }}": "Hi?",
    "{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% endfor %}{{ 'Hi there'.split()[-1] }}": "x1there",
    "{% for m in messages %}{{ loop.length }}{{ loop.last }}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}"
    "{% endfor %}": "2False2Trueassistant",
    "{{ (messages|selectattr('role', 'equalto', 'user')|list|length) * 2 ** 3 % 5 }}": "3",
}


@pytest.mark.parametrize("source", USUAL)
def test_usual_templates_are_rendered(source: str) -> None:
    assert ChatTemplate(source).render(TALK, True, "", "") == USUAL[source]


def test_a_long_conversation_may_count_its_messages_in_a_loop() -> None:
    talk = [{"role": "user", "content": "a question of some words"} for _ in range(500)]
    source = "{% for m in messages %}{% if loop.index == messages|length %}{{ (messages|last).content }}{% endif %}"
    assert ChatTemplate(source + "{% endfor %}").render(talk, True, "", "") == "a question of some words"


def test_a_long_conversation_may_need_more_work() -> None:
    talk = [{"role": role, "content": "long text " * 30000} for role in ("user", "assistant") * 20]
    source = (
        "{% set box = namespace(s='') %}{% for m in messages %}{% set box.s = box.s ~ m.content|trim %}{% endfor %}"
    )
    assert len(ChatTemplate(source + "{{ box.s }}").render(talk, True, "", "")) == 40 * 299_999


CHILD = """
import resource, sys
from glassformer.base.errors import GlassError
from glassformer.text.chat_template import ChatTemplate
from tests.unit.hostile_templates import NOT_AVAILABLE, SLOW, TALK, TOO_MUCH
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print("ready", flush=True)
while True:
    for source in (*NOT_AVAILABLE.values(), *TOO_MUCH.values(), *SLOW.values()):
        try:
            ChatTemplate(source).render(TALK, True, "", "")
        except GlassError:
            pass
    if sys.argv[1:] == ["once"]:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        break
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="the module resource is only in Unix")
def test_the_memory_of_a_template_is_bounded() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "once"], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(done.stdout.split()[-1]) * unit < 200 * 2**20


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
def test_a_template_that_runs_long_obeys_sigterm() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait() == -signal.SIGTERM
