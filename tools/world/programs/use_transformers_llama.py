"""Llama of transformers: loss, gradients, generation with and without a cache."""

import json

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
)  # fmt: skip
model = LlamaForCausalLM(config)
ids = torch.randint(3, 64, (2, 12))
loss = model(input_ids=ids, labels=ids).loss
loss.backward()
norms = [p.grad.norm().item() for p in model.parameters()]
model.eval()
cached = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0)
plain = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0, use_cache=False)
assert cached.tolist() == plain.tolist()
mask = torch.ones_like(ids)
mask[0, :4] = 0
with torch.no_grad():
    padded = model(input_ids=ids, attention_mask=mask).logits[:, -1]
found = {"loss": loss.item(), "norms": norms, "tokens": cached.tolist()}
print(json.dumps({**found, "padded": padded.tolist()}))
