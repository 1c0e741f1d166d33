"""BERT, T5, ViT and Whisper of transformers: outputs and gradients."""

import json

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

torch.manual_seed(0)
small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
ids = torch.randint(3, 60, (2, 9))
found = {}

bert = BertForSequenceClassification(BertConfig(vocab_size=64, intermediate_size=48, **small))
loss = bert.eval()(ids, labels=torch.tensor([0, 1])).loss
loss.backward()
found["bert"] = [loss.item(), *(p.grad.norm().item() for p in bert.parameters())]

t5 = T5ForConditionalGeneration(
    T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        decoder_start_token_id=0,
    )
).eval()  # fmt: skip
loss = t5(input_ids=ids, labels=ids[:, :5].contiguous()).loss
loss.backward()
found["t5"] = [loss.item(), t5.generate(ids, max_new_tokens=6, do_sample=False).tolist()]

vit = ViTForImageClassification(
    ViTConfig(image_size=16, patch_size=8, intermediate_size=48, **small)
).eval()
found["vit"] = vit(torch.randn(2, 3, 16, 16)).logits.tolist()

whisper = WhisperForConditionalGeneration(
    WhisperConfig(
        vocab_size=64, num_mel_bins=8, encoder_layers=1, decoder_layers=1, d_model=32,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, max_source_positions=20, max_target_positions=20,
        decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )
).eval()  # fmt: skip
found["whisper"] = whisper(torch.randn(2, 8, 40), labels=ids).loss.item()
print(json.dumps(found))
