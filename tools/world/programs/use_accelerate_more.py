"""Accelerate: accumulation, clipping, schedulers, saved states, device maps of empty models."""

import json
import tempfile

import torch
from accelerate import Accelerator, init_empty_weights, load_checkpoint_and_dispatch
from accelerate.utils import find_executable_batch_size, set_seed

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
x = torch.randn(32, 4)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4
)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
found = []
for inputs, targets in loader:
    with accelerator.accumulate(model):
        loss = (model(inputs) - targets).pow(2).mean()
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        found.append(loss.item())
found.append(accelerator.gather_for_metrics(torch.ones(3)).sum().item())
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    before = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.zero_()
    accelerator.load_state(folder)
    found.append(torch.equal(before, model[0].weight))
    accelerator.save_model(model, folder + "/model")
    with init_empty_weights():
        empty = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    found.append(str(empty[0].weight.device) == "meta")
    loaded = load_checkpoint_and_dispatch(empty, folder + "/model", device_map={"": "cpu"})
    found.append((loaded(x) - model(x)).abs().max().item())


@find_executable_batch_size(starting_batch_size=16)
def train(batch_size):
    if batch_size > 4:
        raise RuntimeError("CUDA out of memory.")
    return batch_size


found.append(train())
print(json.dumps(found))
