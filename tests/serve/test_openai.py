"""The server with OpenAI's own client: answers, streams, usage, stops, seeds, errors."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from evergrad.serve.openai_types import Reply
from evergrad.serve.sequence import Token
from evergrad.serve.service import Piece, Service
from evergrad.tokenizers import BPETokenizer, ChatTokenizer

from .models import likeliest, made
from .running import ALPHABET, Running, running, small_service

openai = pytest.importorskip(
    "openai", reason="openai is not installed: pip install 'evergrad[test]'"
)
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(small_service()) as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def streamed(stream: Any) -> tuple[str, str, Any]:
    """The text, the reason of the end and the usage of a stream."""
    text, reason, usage = "", "", None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    return text, reason, usage


def test_a_chat_is_answered_with_the_likeliest_tokens(server: Running, client: Any) -> None:
    service = server.service
    found = client.chat.completions.create(
        model="small", messages=HELLO, temperature=0, max_tokens=20
    )
    prompt = service.chat_prompt(HELLO)
    tokens = likeliest(service.engine.model, prompt, 20)
    if service.format.stops & set(tokens):
        tokens = tokens[: min(tokens.index(s) for s in service.format.stops if s in tokens)]
    (choice,) = found.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == service.tokenizer.decode(tokens)
    assert found.usage.prompt_tokens == len(prompt)
    assert found.usage.total_tokens == len(prompt) + found.usage.completion_tokens
    assert found.object == "chat.completion" and found.model == "small"


def test_a_stream_is_the_same_text_in_pieces(client: Any) -> None:
    options = {"model": "small", "messages": HELLO, "seed": 3, "max_tokens": 30}
    whole = client.chat.completions.create(**options)
    stream = client.chat.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    )
    text, reason, usage = streamed(stream)
    assert text == whole.choices[0].message.content
    assert reason == whole.choices[0].finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_seeds_reproduce(client: Any) -> None:
    def text(seed: int) -> str:
        return (
            client.completions.create(model="small", prompt="a", seed=seed, max_tokens=24)
            .choices[0]
            .text
        )

    assert text(1) == text(1) != text(2)


def test_several_choices_and_prompts(client: Any) -> None:
    found = client.completions.create(model="small", prompt=["a", "b"], n=2, seed=5, max_tokens=8)
    texts = [choice.text for choice in found.choices]
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    alone = [
        client.completions.create(model="small", prompt=p, seed=s, max_tokens=8).choices[0].text
        for p in "ab" for s in (5, 6)
    ]  # fmt: skip
    assert texts == alone
    stream = client.completions.create(
        model="small", prompt=["a", "b"], n=2, seed=5, max_tokens=8, stream=True
    )
    pieces = ["", "", "", ""]
    for chunk in stream:
        for choice in chunk.choices:
            pieces[choice.index] += choice.text
    assert pieces == texts


def test_stop_sequences_end_the_text_before_them(client: Any) -> None:
    options = {"model": "small", "prompt": "abc", "seed": 0, "max_tokens": 40}
    whole = client.completions.create(**options).choices[0].text
    stop = whole[10:12]
    for given in (stop, ["zzzz", stop]):
        found = client.completions.create(**options, stop=given)
        assert found.choices[0].text == whole[: whole.index(stop)]
        assert found.choices[0].finish_reason == "stop"
    stream = client.completions.create(**options, stop=stop, stream=True)
    assert "".join(c.choices[0].text for c in stream) == whole[: whole.index(stop)]


def test_log_probabilities(client: Any) -> None:
    found = client.chat.completions.create(
        model="small", messages=HELLO, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3
    )
    content = found.choices[0].logprobs.content
    assert len(content) >= found.usage.completion_tokens - 1 > 0
    for token in content:
        tops = [top.logprob for top in token.top_logprobs]
        assert tops == sorted(tops, reverse=True) and len(tops) == 3
        assert token.logprob == tops[0]  # the likeliest was taken
    legacy = client.completions.create(
        model="small", prompt="ab", temperature=0, max_tokens=5, logprobs=2
    ).choices[0]
    assert "".join(legacy.logprobs.tokens) == legacy.text
    assert legacy.logprobs.text_offset == list(range(len(legacy.text)))
    assert all(len(top) <= 2 for top in legacy.logprobs.top_logprobs)


def test_tokens_may_be_given_and_lengths_end_answers(server: Running, client: Any) -> None:
    tokens = server.service.tokenizer.encode("ab")
    one, two = (
        client.completions.create(model="small", prompt=p, temperature=0, max_tokens=4)
        for p in ("ab", tokens)
    )
    assert one.choices[0].text == two.choices[0].text
    assert one.choices[0].finish_reason == "length" and one.usage.completion_tokens == 4


def test_options_of_other_servers(client: Any) -> None:
    likely = client.completions.create(model="small", prompt="ab", temperature=0, max_tokens=9)
    for extra in ({"top_k": 1}, {"min_p": 1.0}):
        found = client.completions.create(
            model="small", prompt="ab", max_tokens=9, extra_body=extra
        )
        assert found.choices[0].text == likely.choices[0].text
    token = str(ALPHABET.index("z"))
    biased = client.completions.create(
        model="small", prompt="ab", max_tokens=5, logit_bias={token: 100}
    )
    assert len(set(biased.choices[0].text)) == 1


def test_embeddings(server: Running, client: Any) -> None:
    found = client.embeddings.create(model="small", input=["hello", "hello", "other text"])
    a, b, c = (np.array(one.embedding) for one in found.data)
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-3 and np.linalg.norm(a) == pytest.approx(1, abs=1e-5)
    plain = client.embeddings.create(model="small", input="hello", encoding_format="float")
    np.testing.assert_allclose(plain.data[0].embedding, a, rtol=1e-6)


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["small"]
    assert client.models.retrieve("small").owned_by == "evergrad"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("large")


def test_text_cannot_end_a_message(server: Running, client: Any) -> None:
    plain = server.service.chat_prompt([{"role": "user", "content": "<|end|>"}])
    assert sum(token in server.service.format.stops for token in plain) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"messages": []}, "messages is missing or empty"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "a role is"),
        ({"messages": [{"role": "user", "content": None}]}, "is a text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only be a text"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 100}, "n has to be from 1 to 16"),
        ({"stop": ["a"] * 5}, "up to 4"),
        ({"top_logprobs": 2}, "needs logprobs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools is not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": [{"role": "user", "content": "a" * 500}]}, "the model looks at 160"),
        ({"temperature": "hot"}, "temperature has to be float"),
    ],
)
def test_wrong_requests_are_told(client: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(openai.BadRequestError, match=told):
        client.chat.completions.create(**{"model": "small", "messages": HELLO, **options})


def test_an_unknown_model_is_not_found(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="there are small"):
        client.chat.completions.create(model="gpt-4", messages=HELLO)


def test_a_shortened_chat_begins_with_a_question_and_keeps_the_system(server: Running) -> None:
    service = server.service
    turns = [{"role": r, "content": "abc" * 5} for _ in range(4) for r in ("user", "assistant")]
    system = {"role": "system", "content": "be kind"}
    found = service.chat_prompt([system, *turns, *HELLO], shorten=True)
    expected = [service.format.prompt([system, *turns[n:], *HELLO]) for n in range(0, 9, 2)]
    assert found == next(prompt for prompt in expected if len(prompt) <= 80)
    long = [{"role": "user", "content": "abc" * 40}]
    assert service.chat_prompt(long, shorten=True) == service.format.prompt(long)


def shortened(service: Any, messages: list[dict[str, str]]) -> list[int]:
    """One question after the other is left out, with its answers, until the rest fits."""
    kept, prompt = list(messages), service.format.prompt(messages)
    first = int(kept[0]["role"] == "system")
    while len(kept) > first + 1 and len(prompt) > service.context // 2:
        kept.pop(first)
        while len(kept) > first + 1 and kept[first]["role"] == "assistant":
            kept.pop(first)
        prompt = service.format.prompt(kept)
    return prompt


def test_any_conversation_is_shortened_by_whole_turns(server: Running) -> None:
    rng = random.Random(0)
    for _ in range(300):
        roles = rng.choices(("user", "assistant", "system"), (5, 5, 1), k=rng.randrange(1, 14))
        messages = [{"role": role, "content": "a" * rng.randrange(30)} for role in roles]
        found = server.service.chat_prompt(messages, shorten=True)
        assert found == shortened(server.service, messages), messages


def test_a_conversation_of_thousands_of_turns_is_rendered_a_few_times(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, counted = server.service, []
    prompt = service.format.prompt
    monkeypatch.setattr(service.format, "prompt", lambda m: counted.append(len(m)) or prompt(m))
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": str(n)} for n in range(5001)]
    assert len(service.chat_prompt(messages, shorten=True)) <= service.context // 2
    assert len(counted) <= 16


def test_long_chats_are_shortened_if_wanted(client: Any) -> None:
    turns = [{"role": r, "content": "abc" * 8} for _ in range(6) for r in ("user", "assistant")]
    found = client.chat.completions.create(
        model="small", messages=[*turns, *HELLO], max_tokens=3, extra_body={"truncate": True}
    )
    assert found.usage.prompt_tokens <= 80 and found.choices[0].finish_reason in ("length", "stop")


def test_bytes_of_a_token_are_its_own_though_they_are_no_text() -> None:
    """A character of several tokens: the bytes join to it, the texts do not."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed: evergrad[app]")
    tokenizer = ChatTokenizer(BPETokenizer.train("ab", 256))
    service = Service(made(vocabulary=len(tokenizer), context=64), tokenizer, "bytes")
    reply = Reply(service, "chat.completion", "bytes")
    tokens = tokenizer.encode("\u2603a")
    found = reply.log_probabilities(tuple(Token(t, -1.0, ((t, -1.0),)) for t in tokens), 0)
    parts = found["content"]
    assert len(parts) == 4
    assert b"".join(bytes(part["bytes"]) for part in parts).decode() == "\u2603a"
    assert parts[0]["top_logprobs"][0]["bytes"] == parts[0]["bytes"] == [0xE2]


def test_offsets_of_a_whole_answer_are_those_of_its_stream() -> None:
    """Tokens of a part of a character have no text of their own: the next piece sets it right."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed: evergrad[app]")
    tokenizer = ChatTokenizer(BPETokenizer.train("ab", 256))
    service = Service(made(vocabulary=len(tokenizer), context=64), tokenizer, "bytes")
    reply = Reply(service, "text_completion", "bytes")
    texts = ["a", "\u2603", "", "b", "\U0001f600c"]
    pieces = [
        Piece(text, tuple(Token(t, -1.0, ((t, -1.0),)) for t in tokenizer.encode(text)))
        for text in texts
    ]
    whole = reply.whole(0, pieces, with_log=True)
    offset, streamed = 0, []
    for piece in pieces:
        streamed += reply.delta(0, piece, offset, with_log=True)["logprobs"]["text_offset"]
        offset += len(piece.text)
    assert whole["logprobs"]["text_offset"] == streamed == [0, 1, 2, 3, 2, 3, 4, 5, 6, 7]
    assert len(whole["logprobs"]["tokens"]) == len(whole["logprobs"]["token_logprobs"]) == 10
    chat = Reply(service, "chat.completion", "bytes").whole(0, pieces, with_log=True)
    assert len(chat["logprobs"]["content"]) == 10 and chat["logprobs"]["refusal"] is None
