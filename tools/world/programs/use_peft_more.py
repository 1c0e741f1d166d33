"""Adapters of peft beyond LoRA: IA3, LoHa, LoKr, DoRA, AdaLoRA, VeRA, OFT, prompts, prefixes."""

import json
import tempfile

import torch
from peft import (
    AdaLoraConfig,
    IA3Config,
    LoHaConfig,
    LoKrConfig,
    LoraConfig,
    OFTConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptTuningConfig,
    VeraConfig,
    get_peft_model,
)
from transformers import LlamaConfig, LlamaForCausalLM

BASE = LlamaConfig(
    vocab_size=50,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=64,
)
KINDS = {
    "ia3": lambda: IA3Config(
        target_modules=["q_proj", "v_proj", "down_proj"],
        feedforward_modules=["down_proj"],
        task_type="CAUSAL_LM",
    ),
    "loha": lambda: LoHaConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"),
    "lokr": lambda: LoKrConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"),
    "dora": lambda: LoraConfig(
        r=4, use_dora=True, target_modules=["q_proj"], task_type="CAUSAL_LM"
    ),
    "adalora": lambda: AdaLoraConfig(
        init_r=4,
        target_r=2,
        total_step=10,
        tinit=1,
        tfinal=2,
        target_modules=["q_proj"],
        task_type="CAUSAL_LM",
    ),
    "vera": lambda: VeraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"),
    "oft": lambda: OFTConfig(oft_block_size=4, target_modules=["q_proj"], task_type="CAUSAL_LM"),
    "prompt": lambda: PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
    "prefix": lambda: PrefixTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
}
found = {}
tokens = torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(0))
for name, config in KINDS.items():
    torch.manual_seed(0)
    model = get_peft_model(LlamaForCausalLM(BASE), config())
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        torch.manual_seed(0)
        again = PeftModel.from_pretrained(LlamaForCausalLM(BASE), folder).eval()
        with torch.no_grad():
            losses.append(
                (again(input_ids=tokens).logits - model(input_ids=tokens).logits).abs().max().item()
                < 1e-5
            )
    if name in ("ia3", "loha", "lokr", "dora", "vera", "oft"):
        losses.append(model.merge_and_unload()(input_ids=tokens).logits.abs().mean().item())
    found[name] = losses
print(json.dumps(found))
