"""Further models of transformers: a training step each, and ways of generation."""

import json

import torch
import transformers as tf

found = []
x = torch.arange(20).reshape(2, 10) % 30 + 1
SMALL = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def step(model, **inputs):
    """Two training steps and the second loss."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(2):
        loss = model(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return model.eval()


def decoders():
    yield tf.MixtralConfig(**SMALL, num_local_experts=3, num_experts_per_tok=2)
    yield tf.Qwen2Config(**SMALL)
    yield tf.Qwen3Config(**SMALL, head_dim=8)
    yield tf.GemmaConfig(**SMALL, head_dim=8)
    yield tf.Gemma2Config(**SMALL, head_dim=8, sliding_window=8)
    yield tf.MistralConfig(**SMALL, sliding_window=8)
    yield tf.PhiConfig(**SMALL, resid_pdrop=0.0)
    yield tf.MambaConfig(
        vocab_size=40, hidden_size=16, state_size=4, num_hidden_layers=2, pad_token_id=0,
        eos_token_id=2, bos_token_id=1, use_mambapy=False,
    )  # fmt: skip


for config in decoders():
    torch.manual_seed(0)
    model = step(tf.AutoModelForCausalLM.from_config(config), input_ids=x, labels=x)
    found += model.generate(x[:, :4], max_new_tokens=5, do_sample=False).flatten().tolist()

torch.manual_seed(0)
model = tf.LlamaForCausalLM(tf.LlamaConfig(**SMALL)).eval()
helper = tf.LlamaForCausalLM(tf.LlamaConfig(**{**SMALL, "num_hidden_layers": 1})).eval()
options = [
    {"num_beams": 3},
    {"num_beams": 2, "num_return_sequences": 2, "length_penalty": 0.5},
    {"do_sample": True, "top_k": 5, "top_p": 0.9, "temperature": 0.7},
    {"cache_implementation": "static"},
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    {"assistant_model": helper},
]
for chosen in options:
    torch.manual_seed(1)
    chosen = {"do_sample": False, **chosen}
    out = model.generate(x[:1, :4], max_new_tokens=6, min_new_tokens=6, **chosen)
    found += out.flatten().tolist()

torch.manual_seed(0)
bert = {k: v for k, v in SMALL.items() if k != "num_key_value_heads"}
deberta = tf.DebertaV2Config(
    **bert, relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"],
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
step(tf.DebertaV2ForSequenceClassification(deberta), input_ids=x, labels=torch.tensor([0, 1]))
image = {"image_size": 16, "patch_size": 4, "num_channels": 3}
tower = {k: SMALL[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers")}
tower["num_attention_heads"] = 2
clip = tf.CLIPConfig(
    text_config={**tower, "vocab_size": 40, "max_position_embeddings": 16, "eos_token_id": 2},
    vision_config={**tower, **image}, projection_dim=8,
)  # fmt: skip
pixels = torch.randn(2, 3, 16, 16)
step(tf.CLIPModel(clip), input_ids=x, pixel_values=pixels, return_loss=True)
mae = tf.ViTMAEConfig(
    **tower, **image, decoder_hidden_size=16, decoder_num_hidden_layers=1,
    decoder_num_attention_heads=2, decoder_intermediate_size=32,
)  # fmt: skip
noise = torch.rand(2, 16, generator=torch.Generator().manual_seed(0))
step(tf.ViTMAEForPreTraining(mae), pixel_values=pixels, noise=noise)
whisper = tf.WhisperConfig(
    vocab_size=40, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=8,
    max_source_positions=10, max_target_positions=16, pad_token_id=0, bos_token_id=1,
    eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
)  # fmt: skip
step(tf.WhisperForConditionalGeneration(whisper), input_features=torch.randn(2, 8, 20), labels=x)
print(json.dumps(found))
