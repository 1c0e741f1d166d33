"""DeepFM and DCN of DeepCTR, by their fit."""

import json

import numpy as np
from deepctr_torch.inputs import DenseFeat, SparseFeat
from deepctr_torch.models import DCN, DeepFM, xDeepFM

rng = np.random.default_rng(0)
columns = [SparseFeat("a", 10, 4), SparseFeat("b", 7, 4), DenseFeat("c", 1)]
x = {"a": rng.integers(0, 10, 64), "b": rng.integers(0, 7, 64), "c": rng.random(64)}
y = (x["a"] > 4).astype(np.float32)
found = []
for make in (DeepFM, DCN, xDeepFM):
    model = make(columns, columns, dnn_hidden_units=(8, 4), task="binary", device="cpu", seed=1)
    model.compile("adam", "binary_crossentropy")
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
    found += [float(v) for v in history.history["loss"]]
    found.append(float(model.predict(x, 32).sum()))
print(json.dumps(found))
