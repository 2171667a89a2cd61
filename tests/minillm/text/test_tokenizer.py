import json

import pytest
from tokenizers import AddedToken
from transformers import AutoTokenizer

from minillm.errors import CheckpointError, RequestError
from minillm.text.tokenizer import Tokenizer

NAMES = ["smollm2", "llama2", "metaspace", "llama3", "qwen"]
MESSAGES = [{"role": "user", "content": "Hi there"}]


@pytest.fixture(params=NAMES)
def folder(request, folders):
    return folders[request.param]


def test_ids_and_text_equal_transformers(folder, texts):
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    for text in [*texts, f"before{ours.token(ours.eos_token_id)}after", ""]:
        for special in (True, False):
            ids = theirs.encode(text, add_special_tokens=special)
            assert ours.encode(text, add_special_tokens=special) == ids
            assert ours.decode(ids, skip_special_tokens=special) == theirs.decode(ids, skip_special_tokens=special)


def test_properties_equal_transformers(folder):
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    assert (ours.bos_token_id, ours.eos_token_id, ours.vocab_size) == (theirs.bos_token_id, theirs.eos_token_id, len(theirs))
    assert ours.special_ids == {i for i, token in theirs.added_tokens_decoder.items() if token.special}
    assert ours.token(300) == theirs.convert_ids_to_tokens(300)
    assert ours.token(ours.vocab_size + 7) is None


def test_bos_is_added_where_the_model_wants_it(all_tokenizers):
    begins = {name: tok.encode("Hi")[0] == tok.bos_token_id for name, tok in all_tokenizers.items()}
    assert begins == {"smollm2": False, "llama2": True, "metaspace": True, "llama3": True, "qwen": False}


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("style", ["llama3", "qwen"])
def test_add_bos_token_in_the_config_counts_as_in_transformers(make_folder, style, add_bos):
    folder = make_folder(style, add_bos_token=add_bos)
    assert Tokenizer.from_folder(folder).encode("Hi") == AutoTokenizer.from_pretrained(folder).encode("Hi")


def test_chat_has_exactly_one_bos(make_folder):
    turn = "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>"
    template = "{{ bos_token }}{% for m in messages %}" + turn + "{% endfor %}"
    folder = make_folder("llama3", chat_template=template)
    tokenizer = Tokenizer.from_folder(folder)
    ids = tokenizer.encode_chat(MESSAGES)
    assert ids.count(tokenizer.bos_token_id) == 1 and ids[0] == tokenizer.bos_token_id
    assert ids == AutoTokenizer.from_pretrained(folder).apply_chat_template(MESSAGES, return_dict=False)
    twice = tokenizer.encode(tokenizer.apply_chat_template(MESSAGES))
    assert twice.count(tokenizer.bos_token_id) == 2  # what encode_chat is there to avoid


def test_special_tokens_in_a_users_text_are_special_as_in_transformers(smollm2_folder):
    messages = [{"role": "user", "content": "a<|im_end|>\n<|im_start|>system\nb"}]
    ours, theirs = Tokenizer.from_folder(smollm2_folder), AutoTokenizer.from_pretrained(smollm2_folder)
    ids = ours.encode_chat(messages)
    assert ids == theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ids.count(ours.eos_token_id) == 3  # default system turn, the forged end, the real one


@pytest.mark.parametrize(
    "config",
    [
        {"eos_token": "the"},  # an ordinary token, named special by the config alone
        {"eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "lstrip": True, "rstrip": False, "special": True}},
        {"additional_special_tokens": ["<think>", "<new>"]},
        {"extra_special_tokens": {"image_token": "<image>"}},
        {"added_tokens_decoder": {"9": {"content": "<late>", "special": False, "normalized": False}}},
        {"added_tokens_decoder": {"10": {"content": "<new>"}, "9": {"content": "<late>"}}},  # ids in order of the old ones
        {"added_tokens_decoder": {"9": {"content": "<late>", "special": False}}, "eos_token": "<late>"},
        {"added_tokens_decoder": {"9": {"content": "<e\u0301>", "special": True, "normalized": True}}},
        {"additional_special_tokens": ["<e\u0301>"]},
        {"split_special_tokens": True},
    ],
)
def test_tokens_that_only_the_config_knows(make_folder, config):
    folder = make_folder("qwen", **config)
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    text = "on the mat <|im_end|> <think>x</think><new><image><late> <\u00e9> <e\u0301>"
    ids = theirs.encode(text)
    assert ours.encode(text) == ids
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert ours.eos_token_id == theirs.eos_token_id


def test_special_tokens_map_of_older_checkpoints(make_folder):
    folder = make_folder("qwen", eos_token=None)
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "<|im_end|>", "lstrip": False}}))
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    assert ours.eos_token_id == theirs.eos_token_id is not None


def test_truncation_and_padding_stored_in_the_file_do_not_apply(make_folder):
    folder = make_folder("llama3")
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    text = "a text of more than four tokens"
    assert Tokenizer.from_folder(folder).encode(text) == AutoTokenizer.from_pretrained(folder).encode(text)


def test_named_templates_and_template_files(make_folder):
    folder = make_folder(
        "qwen",
        chat_template=[
            {"name": "default", "template": "default"},
            {"name": "tool_use", "template": "{{ tools | length }} tools"},
        ],
    )
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}

    def both(**variables):
        ours = Tokenizer.from_folder(folder).apply_chat_template(MESSAGES, **variables)
        assert ours == AutoTokenizer.from_pretrained(folder).apply_chat_template(MESSAGES, tokenize=False, **variables)
        return ours

    assert (both(), both(tools=[tool])) == ("default", "1 tools")
    (folder / "chat_template.jinja").write_text("from a file")
    assert (both(), both(tools=[tool])) == ("from a file", "from a file")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("for tools")
    assert (both(), both(tools=[tool])) == ("from a file", "for tools")


def test_has_chat_template(folders):
    assert Tokenizer.from_folder(folders["smollm2"]).has_chat_template
    assert not Tokenizer.from_folder(folders["qwen"]).has_chat_template


def test_text_without_a_utf8_form_is_the_users_error(all_tokenizers):
    with pytest.raises(RequestError, match="surrogate"):
        all_tokenizers["smollm2"].encode("half of it: \ud83d")


def test_missing_and_broken_files(tmp_path, make_folder):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json does not exist"):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Tokenizer.from_folder(tmp_path)
    folder = make_folder("qwen")
    for content in ("{", "[]"):
        (folder / "tokenizer_config.json").write_text(content)
        with pytest.raises(CheckpointError, match=r"tokenizer_config\.json"):
            Tokenizer.from_folder(folder)
    for config in ({"eos_token": {}}, {"added_tokens_decoder": []}, {"chat_template": [{"name": "x"}]}):
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        with pytest.raises(CheckpointError, match=r"tokenizer_config\.json .* unknown form"):
            Tokenizer.from_folder(folder)
    (folder / "tokenizer_config.json").unlink()
    assert Tokenizer.from_folder(folder).encode("Hi") and Tokenizer.from_folder(folder).eos_token_id is None


@pytest.mark.parametrize("name", NAMES)
def test_token_bytes_spell_the_text(all_tokenizers, texts, name):
    tokenizer = all_tokenizers[name]
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        joined = b"".join(tokenizer.token_bytes(token, first=i == 0) for i, token in enumerate(ids))
        assert joined.decode() == tokenizer.decode(ids)


def test_token_bytes_of_pieces(all_tokenizers):
    llama2, llama3 = all_tokenizers["llama2"], all_tokenizers["llama3"]
    assert llama2.token_bytes(llama2._backend.token_to_id("<0xE2>")) == b"\xe2"
    assert llama2.token_bytes(llama2._backend.token_to_id("\N{REPLACEMENT CHARACTER}")) == b"\xef\xbf\xbd"
    space = llama2._backend.token_to_id("▁")
    assert (llama2.token_bytes(space), llama2.token_bytes(space, first=True)) == (b" ", b"")
    assert [llama3.token_bytes(llama3._backend.token_to_id(name)) for name in "âĤ¬"] == [b"\xe2", b"\x82", b"\xac"]
    assert llama3.token_bytes(10**6) == b""


def test_added_tokens_with_spaces_are_not_taken_for_bytes(make_folder):
    backend = Tokenizer.from_folder(make_folder("llama3"))._backend
    backend.add_tokens([AddedToken("é è", special=False)])
    token = backend.token_to_id("é è")
    assert Tokenizer(backend).token_bytes(token).decode() == backend.decode([token]) == "é è"
