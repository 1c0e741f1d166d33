"""A bi-encoder from a small BERT: embeddings, similarities and a loss that falls."""

import json
import tempfile
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer, losses, models, util
from transformers import BertConfig, BertModel, BertTokenizer

torch.manual_seed(0)
folder = Path(tempfile.mkdtemp())
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "dog", "sat", "ran", "the"]
(folder / "vocab.txt").write_text("\n".join(words))
BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
config = BertConfig(
    vocab_size=len(words),
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
BertModel(config).save_pretrained(folder)
word = models.Transformer(str(folder))
model = SentenceTransformer(modules=[word, models.Pooling(16)], device="cpu")
texts = ["the cat sat", "the dog ran", "a cat ran"]
found = model.encode(texts, show_progress_bar=False).sum(-1).tolist()
found += (
    util.cos_sim(
        model.encode(texts, convert_to_tensor=True), model.encode(texts[:1], convert_to_tensor=True)
    )
    .flatten()
    .tolist()
)
loss_of = losses.CosineSimilarityLoss(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
batch = [model.tokenize(texts), model.tokenize(texts[::-1])]
for _ in range(3):
    loss = loss_of([dict(b) for b in batch], torch.tensor([1.0, 0.0, 1.0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
model.save(str(folder / "saved"))
again = SentenceTransformer(str(folder / "saved"), device="cpu")
found += again.encode(texts, show_progress_bar=False).sum(-1).tolist()
print(json.dumps([float(v) for v in found]))
