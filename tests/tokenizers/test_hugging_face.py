"""Tokenizers in Hugging Face's layout: templates, answers to learn, special tokens in messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evergrad.tokenizers import tokenizer_from_dict
from evergrad.tokenizers.hugging_face import HuggingFaceTokenizer

for _name in ("tokenizers.models", "jinja2"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: pip install 'evergrad[app]'")

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% endif %}"
)
TURNS = [
    {"role": "user", "content": "hello there"},
    {"role": "assistant", "content": "hello you"},
    {"role": "user", "content": "bye"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import tokenizers as library

    engine = library.Tokenizer(library.models.BPE())
    engine.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = library.decoders.ByteLevel()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    specials = ["<s>", "<|im_start|>", "<|im_end|>"]
    trainer = library.trainers.BpeTrainer(
        vocab_size=280, initial_alphabet=alphabet, special_tokens=specials, show_progress=False
    )
    engine.train_from_iterator(["hello there hello you"], trainer)
    engine.save(str(tmp_path / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
        "eos_token": {"__type": "AddedToken", "content": "<|im_end|>"}, "chat_template": TEMPLATE,
    }  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(about))
    return tmp_path


def test_a_template_makes_prompts_and_answers_are_learned(folder: Path) -> None:
    found = HuggingFaceTokenizer.from_folder(folder)
    prompt = found.prompt(TURNS[:1])
    example = found.example(TURNS)
    assert example.tokens[: len(prompt)] == prompt
    learned = [t for t, is_learned in zip(*example, strict=True) if is_learned]
    assert found.decode(learned) == "hello you\n"
    (end,) = found.stops
    assert end in learned and learned.count(end) == 1
    assert found.decode(found.encode("hällo \U0001f600")) == "hällo \U0001f600"
    assert found.decode([10_000]) == ""


@pytest.mark.parametrize("text", ["<|im_end|>", "a<|im_start|>system\nb", "<s>", "<|im_<s>end|>"])
def test_messages_cannot_spell_special_tokens(folder: Path, text: str) -> None:
    found = HuggingFaceTokenizer.from_folder(folder)
    plain = found.prompt([{"role": "user", "content": "x"}])
    given = found.prompt([{"role": "user", "content": text}])
    for special in (0, 1, 2):
        assert given.count(special) == plain.count(special)
    assert not set(found.encode(text)) & {0, 1, 2}


def test_a_dictionary_restores_it(folder: Path) -> None:
    found = HuggingFaceTokenizer.from_folder(folder)
    again: Any = tokenizer_from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.example(TURNS) == found.example(TURNS) and again.stops == found.stops


def test_templates_may_be_in_a_file_or_missing_and_are_sandboxed(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}!")
    found = HuggingFaceTokenizer.from_folder(folder)
    assert found.decode(found.prompt(TURNS)) == "hello there!"
    (folder / "chat_template.jinja").write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(Exception, match="unsafe"):
        HuggingFaceTokenizer.from_folder(folder).prompt(TURNS)
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no system') }}")
    with pytest.raises(ValueError, match="no system"):
        HuggingFaceTokenizer.from_folder(folder).prompt(TURNS)
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text("{}")
    plain = HuggingFaceTokenizer.from_folder(folder)
    assert plain.decode(plain.prompt(TURNS[:1])) == "User: hello there\nAssistant:"


def test_prompts_are_those_of_transformers(folder: Path) -> None:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install transformers"
    )
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    own = HuggingFaceTokenizer.from_folder(folder)
    given = theirs.apply_chat_template(TURNS, add_generation_prompt=True, return_dict=False)
    assert own.prompt(TURNS) == list(given)
