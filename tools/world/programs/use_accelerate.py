"""A training loop with Accelerator; a model made without memory and filled from a file."""

import json
import tempfile

import torch
from accelerate import Accelerator, init_empty_weights, load_checkpoint_and_dispatch
from accelerate.utils import set_seed

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)


def net():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(16, 6), torch.randn(16, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
for _ in range(3):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss).item())
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_model(model, folder)
    accelerator.save_state(folder + "/state")
    accelerator.load_state(folder + "/state")
    with init_empty_weights():
        empty = net()
    assert all(p.device.type == "meta" for p in empty.parameters())
    filled = load_checkpoint_and_dispatch(empty, folder, device_map={"": "cpu"})
    out = filled(data.tensors[0])
print(json.dumps({"losses": losses, "out": out.flatten().tolist()}))
