"""N-BEATS of pytorch-forecasting over a data frame."""

import json
import warnings

import numpy as np
import pandas as pd
import torch
from pytorch_forecasting import NBeats, TimeSeriesDataSet

warnings.simplefilter("ignore")
torch.manual_seed(0)
frame = pd.DataFrame(
    {
        "t": list(range(60)) * 2,
        "group": ["a"] * 60 + ["b"] * 60,
        "y": np.sin(np.arange(120) / 5.0).astype(np.float32),
    }
)
data = TimeSeriesDataSet(
    frame,
    time_idx="t",
    target="y",
    group_ids=["group"],
    max_encoder_length=12,
    max_prediction_length=4,
    time_varying_unknown_reals=["y"],
)
model = NBeats.from_dataset(
    data,
    widths=[8, 16],
    backcast_loss_ratio=0.1,
    stack_types=["trend", "seasonality"],
    num_blocks=[1, 1],
    expansion_coefficient_lengths=[3, 4],
)
x, y = next(iter(data.to_dataloader(train=False, batch_size=8, num_workers=0)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
found = []
for _ in range(3):
    optimizer.zero_grad()
    loss = (model(x)["prediction"].squeeze(-1) - y[0]).pow(2).mean()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
