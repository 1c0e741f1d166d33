"""TabNet on a small table."""

import contextlib
import io
import json

import numpy as np
from pytorch_tabnet.tab_model import TabNetClassifier

rng = np.random.RandomState(0)
X = rng.randn(64, 5).astype(np.float32)
y = (X[:, 0] > 0).astype(int)
c = TabNetClassifier(seed=0, verbose=0, n_d=4, n_a=4, n_steps=2)
with contextlib.redirect_stdout(io.StringIO()):
    c.fit(X, y, max_epochs=3, batch_size=32, virtual_batch_size=16)
print(json.dumps([float(c.predict_proba(X)[:, 0].sum()), float(c.feature_importances_.sum())]))
