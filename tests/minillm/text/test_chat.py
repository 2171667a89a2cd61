from datetime import datetime

import pytest
from transformers import AutoTokenizer

from minillm.errors import CheckpointError, RequestError
from minillm.text.chat import ChatTemplate
from minillm.text.tokenizer import Tokenizer

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are helpful.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

DATED = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {{- "[calls " + message.tool_calls[0].function | tojson + "]" }}
        {%- continue %}
    {%- endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

ALTERNATING = """{{ bos_token }}{% for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}
    {%- else %}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{% endif %}
{% endfor %}
"""

THINKING = """{%- if tools %}
    {{- '<|im_start|>system\\n# Tools' }}
    {%- for tool in tools %}
        {{- "\\n" + (tool | tojson(indent=2)) }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1, found=false) %}
{%- for message in messages[::-1] %}
    {%- if not ns.found and message.role == "user" %}
        {%- set ns.last = messages|length - loop.index %}
        {%- set ns.found = true %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == "assistant" and '</think>' in content and loop.index0 < ns.last %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

INDENTED = """{# a comment #}
  {% if tools is none and documents is none %}
    no tools
  {% endif %}
{% for message in messages %}
  {% if message.role == "user" %}
{{ message.content }}
  {% endif %}
{% endfor %}
"""

USER = {"role": "user", "content": "Xin chào <b>&\"'</b> \n 👋 "}
ANSWER = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi"}
SYSTEM = {"role": "system", "content": "  Be brief.  "}
TOOL = {"type": "function", "function": {"name": "tìm", "description": "<x> & 'y'", "parameters": {"type": "object"}}}
CASES = {
    "chatml": (CHATML, "qwen"),
    "dated": (DATED, "llama3"),
    "alternating": (ALTERNATING, "llama2"),
    "thinking": (THINKING, "qwen"),
    "indented": (INDENTED, "qwen"),
}
CONVERSATIONS = {
    "one": [USER],
    "three": [USER, ANSWER, USER],
    "system": [SYSTEM, USER],
    "named": [{**USER, "name": None}, ANSWER, {**USER, "extra": {"k": [1, None, True]}}],
}


@pytest.fixture(scope="session", params=CASES)
def pair(request, make_folder):
    """Our tokenizer and transformers' with the same template."""
    template, style = CASES[request.param]
    folder = make_folder(style, chat_template=template)
    return Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)


VARIABLES = [
    {},
    {"add_generation_prompt": False},
    {"tools": [TOOL]},
    {"enable_thinking": False},
    {"date_string": "1 Jan 2030", "bos_token": "<B>"},
]


def attempt(render):
    """What it returns, or what it raises."""
    try:
        return render(), None
    except Exception as e:  # noqa: BLE001 - jinja2's TemplateError, or any error out of the template
        return None, e


@pytest.mark.parametrize("variables", VARIABLES, ids=str)
@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_text_and_ids_equal_transformers(pair, messages, variables):
    ours, theirs = pair
    options = {"add_generation_prompt": True, **variables}
    expected, refusal = attempt(lambda: theirs.apply_chat_template(messages, tokenize=False, **options))
    if refusal is not None:
        with pytest.raises(RequestError, match="chat template") as caught:
            ours.apply_chat_template(messages, **options)
        assert str(refusal) in str(caught.value)
        return
    assert ours.apply_chat_template(messages, **options) == expected
    assert ours.encode_chat(messages, **options) == theirs.apply_chat_template(messages, return_dict=False, **options)


def test_smollm2s_own_template(smollm2_folder):
    ours, theirs = Tokenizer.from_folder(smollm2_folder), AutoTokenizer.from_pretrained(smollm2_folder)
    options = {"add_generation_prompt": True}
    for messages in CONVERSATIONS.values():
        assert ours.apply_chat_template(messages) == theirs.apply_chat_template(messages, tokenize=False, **options)
        assert ours.encode_chat(messages) == theirs.apply_chat_template(messages, return_dict=False, **options)
    assert ours.apply_chat_template([USER]).startswith("<|im_start|>system\nYou are a helpful AI assistant")


def template(source, **special_tokens):
    return ChatTemplate({"default": source}, special_tokens)


def test_tool_calls_need_no_content(make_folder):
    folder = make_folder("llama3", chat_template=DATED)
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    ours = Tokenizer.from_folder(folder).apply_chat_template(messages)
    assert ours == AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert '[calls {"name": "f", "arguments": "{}"}]' in ours


def test_the_date_is_todays():
    before = datetime.now().strftime("%Y-%m-%d")
    shown = template("{{ strftime_now('%Y-%m-%d') }}").render([USER])
    assert shown in (before, datetime.now().strftime("%Y-%m-%d"))


def test_text_parts_are_joined_by_newlines():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert template("{{ messages[0].content }}").render([{"role": "user", "content": parts}]) == "one\ntwo"


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        (None, "non-empty list"),
        ("hello", "non-empty list"),
        ({"role": "user", "content": "x"}, "non-empty list"),
        ([], "non-empty list"),
        (["hello"], r"messages\[0\] must be an object"),
        ([USER, {"content": "x"}], r"messages\[1\]\.role must be a string"),
        ([{"role": 3, "content": "x"}], r"messages\[0\]\.role must be a string"),
        ([{"role": "user"}], r"messages\[0\]\.content is missing"),
        ([{"role": "user", "content": None}], r"messages\[0\]\.content is missing"),
        ([{"role": "user", "content": 3}], r"messages\[0\]\.content must be a string or a list of text parts; got int"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], r"content\[0\] must be .* only text"),
        ([{"role": "user", "content": ["x"]}], r"content\[0\] must be"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], r"content\[0\] must be"),
    ],
)
def test_malformed_messages(messages, says):
    with pytest.raises(RequestError, match=says) as caught:
        template(CHATML).render(messages)
    assert caught.value.param == "messages"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "{{ raise_exception('Only user and assistant roles are supported!') }}",
            "refuses these messages: Only user and assistant",
        ),
        ("{{ messages[0].missing.field }}", "refuses these messages"),
        ("{{ messages[0].content + 1 }}", "cannot write these messages .TypeError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages.append(1) }}", "refuses these messages"),
        ("{{ ''.__class__.__mro__ }}", "refuses these messages"),
        ("{{ range(10**9) | length }}", "OverflowError"),
    ],
)
def test_what_a_template_raises_is_a_request_error(source, says):
    with pytest.raises(RequestError, match=says) as caught:
        template(source).render([USER])
    assert caught.value.param == "messages"


def test_messages_are_not_changed():
    messages = [{"role": "user", "content": [{"type": "text", "text": "x"}], "name": None}]
    template("{{ messages }}").render(messages)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "x"}], "name": None}]


def test_no_template_says_what_to_do():
    with pytest.raises(RequestError, match="no chat template: use /v1/completions"):
        ChatTemplate({}, {}).render([USER])


def test_a_template_nobody_can_use_is_the_checkpoints_fault():
    with pytest.raises(CheckpointError, match="not valid Jinja, line 2"):
        template("ok\n{% for %}").render([USER])
    with pytest.raises(CheckpointError, match="named rag, tool_use"):
        ChatTemplate({"rag": "x", "tool_use": "y"}, {}).render([USER])


def test_generation_blocks_are_scopes():
    assert template("{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}").render([USER]) == "21"
