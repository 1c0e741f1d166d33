"""LoRA on a small GPT-2: only adapters train; merged and saved."""

import json
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4)


def base():
    torch.manual_seed(0)
    return GPT2LMHeadModel(config)


lora = LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True)
model = get_peft_model(base(), lora)
ids = torch.randint(0, 64, (2, 10))
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
losses = []
for _ in range(4):
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    logits = model(ids).logits
    model.save_pretrained(folder)
    again = PeftModel.from_pretrained(base(), folder).eval()
    assert torch.allclose(again(ids).logits, logits, atol=1e-6)
    merged = model.merge_and_unload()(ids).logits
    assert torch.allclose(merged, logits, atol=1e-4)
trained, total = again.get_nb_trainable_parameters()
print(json.dumps({"losses": losses, "logits": logits.tolist(), "count": [trained, total]}))
