"""GPT-2 of transformers: loss, a training step, greedy, sampled and beam tokens, a local folder."""

import json
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4)
model = GPT2LMHeadModel(config)
ids = torch.randint(0, 64, (2, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model.train()
losses = []
for _ in range(3):
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
model.eval()
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    again = GPT2LMHeadModel.from_pretrained(folder).eval()
arguments = {"max_new_tokens": 8, "pad_token_id": 0}
greedy = again.generate(ids, do_sample=False, **arguments)
beams = again.generate(ids, num_beams=3, do_sample=False, **arguments)
torch.manual_seed(1)
sampled = again.generate(ids, do_sample=True, top_k=10, top_p=0.9, temperature=0.8, **arguments)
with torch.no_grad():
    logits = again(ids).logits
found = {"losses": losses, "greedy": greedy.tolist(), "beams": beams.tolist()}
print(json.dumps({**found, "sampled": sampled.tolist(), "logits": logits.tolist()}))
