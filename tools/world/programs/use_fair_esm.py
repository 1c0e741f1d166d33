"""ESM-2: a small protein language model."""

import json

import torch
from esm.data import Alphabet
from esm.model.esm2 import ESM2

torch.manual_seed(0)
alphabet = Alphabet.from_architecture("ESM-1b")
model = ESM2(num_layers=2, embed_dim=32, attention_heads=4, alphabet=alphabet, token_dropout=True)
convert = alphabet.get_batch_converter()
_, _, tokens = convert([("a", "MKTVRQERLK"), ("b", "KALTARQQ<mask>VF")])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
found = []
for _ in range(3):
    optimizer.zero_grad()
    logits = model(tokens)["logits"]
    loss = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), tokens, ignore_index=alphabet.padding_idx
    )
    loss.backward()
    optimizer.step()
    found.append(loss.item())
model.eval()
out = model(tokens, repr_layers=[1, 2], return_contacts=True)
found += [out["representations"][2].abs().sum().item(), out["contacts"].sum().item()]
print(json.dumps(found))
