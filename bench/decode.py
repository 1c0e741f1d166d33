"""Time decoding against PyTorch, ``transformers`` and llama.cpp, all in one run.

    python bench/decode.py [--quick] [--tokens 64] [--model gpt|llama] [--threads 1 --clock cpu]

Two models with random weights: a GPT of 6 layers of 192 and a Llama of 12 layers of 512. For 1, 8
and 32 streams: tokens per second of all together and the time to the first token, the mean over
streams. Peers take turns, so that a busy machine disturbs all alike; medians over rounds are shown,
and the median of the ratios within a round. Every peer decodes greedily with a key-value cache and
all streams in one batch. ``--clock cpu`` counts the processor time of the process instead of
seconds, which is the fairer figure with one thread where others use the machine. Peers that are not
installed are left out, and that is said:

    pip install torch==2.13.0 transformers llama-cpp-python gguf
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import evergrad as eg
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.models.hugging_face import save_hugging_face
from evergrad.models.quantize import quantize
from evergrad.serve.engine import Engine, EngineConfig
from evergrad.serve.sampling import Sampling
from evergrad.serve.sequence import Request, Token

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
now = CLOCKS["wall"]
threads = os.cpu_count() or 1
PROMPT = 32
MODELS = {
    "gpt": GPTConfig(
        vocabulary=1024, context=256, layers=6, heads=6, width=192, feed_forward="gelu_tanh"
    ),
    "llama": GPTConfig(
        vocabulary=4096, context=256, layers=12, heads=8, width=512, inner=1376,
        positions="rotary", norm="rms", feed_forward="swiglu", bias=False, tie=False,
    ),
}  # fmt: skip


class Result(NamedTuple):
    rate: float  # tokens per second
    first: float  # seconds to the first token


Peer = Callable[[int, int], Result]  # streams, tokens
Array = np.ndarray[Any, Any]


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def _SILENT(level: int, text: bytes, data: int) -> None:
    """What llama.cpp has to say."""


def prompts(config: GPTConfig, streams: int) -> list[list[int]]:
    rng = np.random.default_rng(streams)
    return rng.integers(1, config.vocabulary, (streams, PROMPT)).tolist()


def copied(model: GPT) -> GPT:
    """An engine packs the weights of the model it is given."""
    found = GPT(model.config)
    found.load_state_dict(model.state_dict())
    return found.eval()


def ours(model: GPT) -> Peer:
    engine = Engine(model, EngineConfig(sequences=32))
    engine.prepare()

    def run(streams: int, count: int) -> Result:
        engine.table.forget()  # no prompt is known from the round before
        first: dict[int, float] = {}

        def observe(number: int, event: Any) -> None:
            if isinstance(event, Token):
                first.setdefault(number, now() - begin)

        begin = now()
        for number, prompt in enumerate(prompts(model.config, streams)):
            request = Request(tuple(prompt), count, Sampling(0.0))
            engine.submit(request, partial(observe, number))
        engine.run()
        taken = now() - begin
        return Result(streams * count / taken, sum(first.values()) / streams)

    return run


def transformers_peer(folder: Path, compiled: bool) -> Peer:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    if compiled:
        model.forward = torch.compile(model.forward)

    def run(streams: int, count: int) -> Result:
        given = torch.tensor(prompts(config_of(folder), streams))
        options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        if compiled:
            options["cache_implementation"] = "static"
        with torch.no_grad():
            begin = now()
            model.generate(given, max_new_tokens=1, **options)
            first = now() - begin
            begin = now()
            model.generate(given, max_new_tokens=count, **options)
            return Result(streams * count / (now() - begin), first)

    return run


_CONFIGS: dict[Path, GPTConfig] = {}


def config_of(folder: Path) -> GPTConfig:
    return _CONFIGS[folder]


def torch_peer(folder: Path, compiled: bool) -> Peer:
    """PyTorch alone: the model called with its cache, one batch of all streams.

    Compiled, the cache has a fixed size, so that no shape changes from token to token.
    """
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    torch._dynamo.config.recompile_limit = 64  # two lengths for each number of streams
    call = torch.compile(model, dynamic=False) if compiled else model

    def run(streams: int, count: int) -> Result:
        config = config_of(folder)
        tokens = torch.tensor(prompts(config, streams))
        with torch.no_grad():
            begin = now()
            cache: Any = None
            if compiled:
                cache = transformers.StaticCache(config=model.config, max_cache_len=config.context)
            out = call(tokens, past_key_values=cache, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
            first = now() - begin
            for _ in range(count - 1):
                out = call(token, past_key_values=out.past_key_values, use_cache=True)
                token = out.logits[:, -1:].argmax(-1)
            return Result(streams * count / (now() - begin), first)

    return run


# -- llama.cpp ----------------------------------------------------------------------------------


def save_gguf(model: GPT, file: Path, is_quantized: bool) -> None:
    """A Llama as llama.cpp reads it: in float32, or with matrices in q8_0."""
    import gguf

    c = model.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(c.context)
    writer.add_embedding_length(c.width)
    writer.add_block_count(c.layers)
    writer.add_feed_forward_length(c.hidden)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(c.shared_heads)
    writer.add_layer_norm_rms_eps(c.eps)
    writer.add_rope_dimension_count(c.head_size)
    writer.add_rope_freq_base(c.rotary_base)
    writer.add_vocab_size(c.vocabulary)
    writer.add_tokenizer_model("no_vocab")
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, array in gguf_tensors(model).items():
        if is_quantized and array.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_tensors(model: GPT) -> dict[str, Array]:
    c, state = model.config, {k: v.numpy() for k, v in model.state_dict().items()}
    found = {
        "token_embd.weight": state["tokens.weight"],
        "output_norm.weight": state["norm.weight"],
        "output.weight": state["head.weight"],
    }
    rows = [c.heads * c.head_size, c.shared_heads * c.head_size]
    for n in range(c.layers):
        q, k, v = np.split(state[f"blocks.{n}.attention.qkv.weight"], np.cumsum(rows))
        found |= {
            f"blk.{n}.attn_norm.weight": state[f"blocks.{n}.norm1.weight"],
            f"blk.{n}.attn_q.weight": interleaved(q, c.heads),
            f"blk.{n}.attn_k.weight": interleaved(k, c.shared_heads),
            f"blk.{n}.attn_v.weight": v,
            f"blk.{n}.attn_output.weight": state[f"blocks.{n}.attention.out.weight"],
            f"blk.{n}.ffn_norm.weight": state[f"blocks.{n}.norm2.weight"],
            f"blk.{n}.ffn_up.weight": state[f"blocks.{n}.feed_forward.widen.weight"],
            f"blk.{n}.ffn_gate.weight": state[f"blocks.{n}.feed_forward.gate.weight"],
            f"blk.{n}.ffn_down.weight": state[f"blocks.{n}.feed_forward.out.weight"],
        }
    return {name: np.ascontiguousarray(array, np.float32) for name, array in found.items()}


def interleaved(weight: Array, heads: int) -> Array:
    """Rows in the order of llama.cpp, which turns neighbours; ours turns halves of a head."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def llama_cpp_peer(file: Path, config: GPTConfig) -> Peer:
    """llama.cpp, all streams in one batch."""
    import llama_cpp as lib

    lib.llama_log_set(_SILENT, None)
    model = lib.llama_model_load_from_file(str(file).encode(), lib.llama_model_default_params())
    options = lib.llama_context_default_params()
    options.n_seq_max = 32
    options.n_ctx = 32 * config.context
    options.n_batch = options.n_ubatch = 32 * PROMPT
    options.n_threads = options.n_threads_batch = threads
    context = lib.llama_init_from_model(model, options)
    batch = lib.llama_batch_init(32 * PROMPT, 0, 1)

    def decode(rows: list[tuple[int, int, int, bool]]) -> Array:
        """Read (token, position, sequence, whether it is scored); the likeliest after each."""
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, is_scored) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = is_scored
        assert lib.llama_decode(context, batch) == 0
        scored = [i for i, row in enumerate(rows) if row[3]]
        scores = [lib.llama_get_logits_ith(context, i) for i in scored]
        return np.array([np.ctypeslib.as_array(s, (config.vocabulary,)).argmax() for s in scores])

    def run(streams: int, count: int) -> Result:
        begin = now()
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        given = prompts(config, streams)
        tokens = decode([
            (token, i, s, i == PROMPT - 1) for s, row in enumerate(given)
            for i, token in enumerate(row)
        ])  # fmt: skip
        first = now() - begin
        for i in range(count - 1):
            tokens = decode([(int(t), PROMPT + i, s, True) for s, t in enumerate(tokens)])
        return Result(streams * count / (now() - begin), first)

    return run


def peers_of(name: str, model: GPT, folder: Path, quick: bool) -> dict[str, Peer]:
    found: dict[str, Peer] = {"evergrad": ours(copied(model))}
    for kind in ("bfloat16", "int8"):
        found[f"evergrad {kind}"] = ours(quantize(copied(model), kind))  # type: ignore[arg-type]
    if find_spec("torch") and find_spec("transformers"):
        import torch

        torch.set_num_threads(threads)
        found["torch"] = torch_peer(folder, compiled=False)
        found["generate"] = transformers_peer(folder, compiled=False)
        if not quick:  # to compile takes minutes
            found["torch, compiled"] = torch_peer(folder, compiled=True)
            found["generate, compiled"] = transformers_peer(folder, compiled=True)
    else:
        print("torch or transformers is not installed: not measured")
    if name == "llama" and find_spec("llama_cpp") and find_spec("gguf"):
        for kind in ("float32", "q8_0"):
            file = folder / f"{kind}.gguf"
            save_gguf(model, file, kind == "q8_0")
            found[f"llama.cpp {kind}"] = llama_cpp_peer(file, model.config)
    elif name == "llama":
        print("llama-cpp-python or gguf is not installed: not measured")
    return found


def quality(model: GPT) -> None:
    """What small weights change: scores of random text against those of float32."""
    tokens = eg.tensor(prompts(model.config, 8))
    with eg.no_grad():
        plain = model(tokens).log_softmax(-1)
        for kind in ("bfloat16", "int8"):
            small = quantize(copied(model), kind)(tokens).log_softmax(-1)  # type: ignore[arg-type]
            divergence = (plain.exp() * (plain - small)).sum(-1).mean().item()
            same = (plain.argmax(-1) == small.argmax(-1)).float().mean().item()
            print(f"  {kind}: divergence {divergence:.2e} nats, same likeliest token {same:.1%}")


def measure(name: str, options: argparse.Namespace) -> None:
    quick: bool = options.quick
    eg.manual_seed(0)
    model = GPT(MODELS[name]).eval()
    count = options.tokens or (16 if quick else 64)
    rounds = options.rounds or (3 if quick else 7)
    print(f"\n{name}: {sum(p.numel() for p in model.parameters()):,} parameters")
    quality(model)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _CONFIGS[folder] = model.config
        save_hugging_face(model, folder)
        peers = peers_of(name, model, folder, quick)
        chosen = ["evergrad", "evergrad int8", *(options.peer or peers)]
        peers = {peer: run for peer, run in peers.items() if peer in chosen}
        for streams in options.streams or [1, 8, 32]:
            for run in peers.values():
                run(streams, 4)  # compiles what it compiles
            found = {peer: [] for peer in peers}  # type: dict[str, list[Result]]
            for _ in range(rounds):
                for peer, run in peers.items():
                    found[peer].append(run(streams, count))
            report(streams, found)


def report(streams: int, found: dict[str, list[Result]]) -> None:
    """Medians, and how many times faster than a peer ours is: with int8 weights than q8_0."""
    for peer, results in found.items():
        own = found["evergrad int8" if "q8_0" in peer else "evergrad"]
        pairs = list(zip(own, results, strict=True))
        faster = statistics.median(a.rate / b.rate for a, b in pairs)
        sooner = statistics.median(b.first / a.first for a, b in pairs)
        rate = statistics.median(r.rate for r in results)
        first = statistics.median(r.first for r in results)
        print(
            f"  {streams:2d} streams  {peer:20s} {rate:9,.0f} tokens/s  first {1e3 * first:7.1f} ms"
            f"  ours is {faster:.2f}x as fast, {sooner:.2f}x as soon",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--model", choices=list(MODELS), action="append")
    parser.add_argument("--threads", type=int, default=threads, help="of every peer")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--tokens", type=int, help="that are written; 64, or 16 if it is quick")
    parser.add_argument("--peer", action="append", help="beside ours, all by default")
    parser.add_argument("--rounds", type=int, help="of which the median is; 7, or 3 if it is quick")
    parser.add_argument("--streams", type=int, action="append", help="1, 8 and 32 by default")
    given = parser.parse_args()
    now, threads = CLOCKS[given.clock], given.threads
    eg.set_num_threads(threads)
    print(f"{threads} threads, {given.clock} time")
    for each in given.model or list(MODELS):
        measure(each, given)
