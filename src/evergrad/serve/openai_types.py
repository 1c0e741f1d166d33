"""Bodies of OpenAI's API: what clients send, checked, and what they are sent."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evergrad.serve.sampling import Sampling
from evergrad.serve.sequence import Token
from evergrad.serve.service import Piece, Service, Wanted

if TYPE_CHECKING:
    from evergrad.core.types import JsonObject

_MOST_CHOICES = 16
_MOST_STOPS = 4
_MOST_INPUTS = 2048  # as OpenAI has it
_MOST_LIKELIEST = 20
_REFUSED = ("tools", "functions", "tool_choice", "function_call", "audio", "best_of", "suffix")


class RequestError(Exception):
    """A request that cannot be answered: status, message and the option at fault."""

    def __init__(
        self, message: str, param: str | None = None, status: int = 400, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: JsonObject = {
            "error": {
                "message": message,
                "type": "invalid_request_error" if status < 500 else "server_error",
                "param": param,
                "code": code,
            }
        }


class Body:
    """A JSON object whose values are taken with their type checked."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, Mapping):
            raise RequestError("the body has to be a JSON object")
        self._value = value
        for name in _REFUSED:
            if value.get(name) not in (None, [], {}, "none", 1):
                raise RequestError(f"{name} is not supported", name)

    def __contains__(self, name: str) -> bool:
        return self._value.get(name) is not None

    def take(self, name: str, *kinds: type, default: object = None) -> Any:
        found = self._value.get(name)
        if found is None:
            return default
        is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
        if float in kinds and is_number:
            return _float(found, name)
        if isinstance(found, kinds) and (bool in kinds or not isinstance(found, bool)):
            return found
        names = " or ".join(kind.__name__ for kind in kinds)
        raise RequestError(f"{name} has to be {names}, not {str(found)[:80]!r}", name)

    def whole(self, name: str, least: int, most: int, default: object = None) -> Any:
        found = self.take(name, int, default=default)
        if found is not None and not least <= found <= most:
            raise RequestError(f"{name} has to be from {least} to {most}, not {found}", name)
        return found


def _float(value: Any, name: str) -> float:
    try:
        return float(value)
    except OverflowError as error:  # JSON has whole numbers of any size
        raise RequestError(f"{name} has a number that is too large", name) from error


def sampling(body: Body) -> Sampling:
    """The options of OpenAI, and those that other servers add under the same names."""
    bias = body.take("logit_bias", dict, default={})
    try:
        return Sampling(
            temperature=body.take("temperature", float, default=1.0),
            top_k=body.take("top_k", int),
            top_p=body.take("top_p", float),
            min_p=body.take("min_p", float),
            repetition_penalty=body.take("repetition_penalty", float, default=1.0),
            presence_penalty=body.take("presence_penalty", float, default=0.0),
            frequency_penalty=body.take("frequency_penalty", float, default=0.0),
            logit_bias={int(token): _float(v, "logit_bias") for token, v in bias.items()},
            seed=body.whole("seed", -(1 << 63), (1 << 63) - 1),
        )
    except (ValueError, TypeError) as error:
        raise RequestError(str(error)) from error


def stops(body: Body) -> tuple[str, ...]:
    found = body.take("stop", str, list, default=[])
    many = [found] if isinstance(found, str) else found
    if len(many) > _MOST_STOPS or not all(isinstance(stop, str) and stop for stop in many):
        raise RequestError(f"stop has to be a text or up to {_MOST_STOPS} texts", "stop")
    return tuple(many)


def adapter(body: Body, service: Service) -> str | None:
    """The adapter that ``model`` names; ``None`` for the model alone."""
    name = body.take("model", str, default=service.name)
    if name not in service.models():
        known = ", ".join(service.models())
        raise RequestError(
            f"there is no model {name!r}; there are {known}", "model", 404, "model_not_found"
        )
    return name.removeprefix(service.name).removeprefix(":") or None


def wanted(body: Body, service: Service, default: int | None, likeliest: int | None) -> Wanted:
    most = body.whole("max_tokens", 1, 1 << 30)
    most = body.whole("max_completion_tokens", 1, 1 << 30, default=most)
    given = body.take("response_format", dict, default={})
    if given.get("type", "text") != "text":
        raise RequestError("response_format can only be text", "response_format")
    return Wanted(
        default if most is None else most, sampling(body), stops(body), likeliest,
        adapter(body, service),
    )  # fmt: skip


def chat_likeliest(body: Body) -> int | None:
    """How many likeliest tokens are reported with each; ``None`` for no log-probabilities."""
    count = body.whole("top_logprobs", 0, _MOST_LIKELIEST, default=0)
    if body.take("logprobs", bool, default=False):
        return int(count)
    if count:
        raise RequestError("top_logprobs needs logprobs to be true", "top_logprobs")
    return None


def messages(body: Body) -> list[JsonObject]:
    """Messages whose content is a text, or parts of which each is one."""
    found: list[JsonObject] = []
    for message in body.take("messages", list, default=[]):
        if not isinstance(message, Mapping):
            raise RequestError("a message has to be an object", "messages")
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(_part(part) for part in content)
        role = {"developer": "system"}.get(str(message.get("role")), message.get("role"))
        found.append({"role": role, "content": content})
    if not found:
        raise RequestError("messages is missing or empty", "messages")
    return found


def _part(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) else None
    if isinstance(text, str) and part.get("type") == "text":
        return text
    raise RequestError("a part of a message can only be a text", "messages")


def prompts(body: Body, service: Service, name: str) -> list[list[int]]:
    """One text or several, or their tokens."""
    given = body.take(name, str, list)
    if given is None:
        raise RequestError(f"{name} is missing", name)
    many = [given] if isinstance(given, str) or _are_tokens(given) else given
    if len(many) > _MOST_INPUTS:
        raise RequestError(f"{name} has to be at most {_MOST_INPUTS} texts, not {len(many)}", name)
    found = [_tokens(one, service, name) for one in many]
    if not found or not all(found):
        raise RequestError(f"{name} is empty", name)
    return found


def _are_tokens(value: Any) -> bool:
    is_whole = [isinstance(one, int) and not isinstance(one, bool) for one in value]
    return bool(is_whole) and all(is_whole)


def _tokens(one: object, service: Service, name: str) -> list[int]:
    if isinstance(one, str):
        try:
            return service.text_prompt(one)
        except ValueError as error:
            raise RequestError(str(error), name) from error
    if isinstance(one, list) and _are_tokens(one):
        return one
    raise RequestError(f"{name} has to be a text, texts, tokens or lists of tokens", name)


# -- what clients are sent --------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """The kind of an answer's bodies, and what they all share."""

    service: Service
    kind: str  # chat.completion or text_completion
    model: str
    id: str = field(default_factory=lambda: f"eg-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def is_chat(self) -> bool:
        return self.kind == "chat.completion"

    def envelope(
        self, choices: list[dict[str, object]], kind: str | None = None
    ) -> dict[str, object]:
        return {
            "id": self.id, "object": kind or self.kind, "created": self.created,
            "model": self.model, "choices": choices,
        }  # fmt: skip

    def chunk(self, choices: list[dict[str, object]]) -> dict[str, object]:
        return self.envelope(choices, "chat.completion.chunk" if self.is_chat else self.kind)

    def delta(self, index: int, piece: Piece, offset: int, with_log: bool) -> JsonObject:
        """A part of an answer."""
        return {
            "index": index,
            **({"delta": {"content": piece.text}} if self.is_chat else {"text": piece.text}),
            "logprobs": self.log_probabilities(piece.tokens, offset) if with_log else None,
            "finish_reason": finish_reason(piece.reason),
        }

    def whole(self, index: int, pieces: list[Piece], with_log: bool) -> JsonObject:
        """A whole answer."""
        text = "".join(piece.text for piece in pieces)
        message = {"role": "assistant", "content": text, "refusal": None}
        return {
            "index": index,
            **({"message": message} if self.is_chat else {"text": text}),
            "logprobs": self._joined(pieces) if with_log else None,
            "finish_reason": finish_reason(pieces[-1].reason),
        }

    def _joined(self, pieces: list[Piece]) -> dict[str, object]:
        """The log-probabilities of all pieces, with the offsets that each has in a stream."""
        found: dict[str, Any] = self.log_probabilities((), 0)
        offset = 0
        for piece in pieces:
            for name, values in self.log_probabilities(piece.tokens, offset).items():
                if isinstance(values, list):
                    found[name] += values
            offset += len(piece.text)
        return found

    def log_probabilities(self, tokens: tuple[Token, ...], offset: int) -> dict[str, object]:
        if self.is_chat:
            return {"content": [self._chat_token(token) for token in tokens], "refusal": None}
        texts = [self._text(token.token) for token in tokens]
        starts = [offset + sum(map(len, texts[:i])) for i in range(len(texts))]
        tops = [{self._text(t): value for t, value in token.likeliest} for token in tokens]
        return {
            "tokens": texts, "token_logprobs": [token.log_probability for token in tokens],
            "top_logprobs": tops, "text_offset": starts,
        }  # fmt: skip

    def _chat_token(self, token: Token) -> dict[str, object]:
        own = self._described(token.token, token.log_probability)
        return {**own, "top_logprobs": [self._described(t, v) for t, v in token.likeliest]}

    def _described(self, token: int, value: float | None) -> dict[str, object]:
        own = list(self.service.tokenizer.token_bytes(token))
        return {"token": self._text(token), "logprob": value, "bytes": own}

    def _text(self, token: int) -> str:
        return self.service.tokenizer.decode([token])


def usage(prompt: int, written: int, reused: int = 0) -> dict[str, object]:
    return {
        "prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": reused},
    }  # fmt: skip


def finish_reason(reason: str | None) -> str | None:
    return {"cancelled": "stop", "error": "error"}.get(reason, reason) if reason else None
