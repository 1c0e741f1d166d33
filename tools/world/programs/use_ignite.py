"""An engine of ignite with metrics and a checkpoint."""

import json
import tempfile

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver
from ignite.metrics import Accuracy, Loss

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
criterion = torch.nn.CrossEntropyLoss()
data = [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(4)]
trainer = create_supervised_trainer(model, optimizer, criterion)
evaluator = create_supervised_evaluator(
    model, metrics={"accuracy": Accuracy(), "loss": Loss(criterion)}
)
losses = []
trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda e: losses.append(e.state.output))
with tempfile.TemporaryDirectory() as folder:
    saver = Checkpoint({"model": model}, DiskSaver(folder, require_empty=False))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
    trainer.run(data, max_epochs=3)
    Checkpoint.load_objects(
        {"model": model},
        torch.load(
            saver.last_checkpoint.as_posix()
            if hasattr(saver.last_checkpoint, "as_posix")
            else f"{folder}/{saver.last_checkpoint}"
        ),
    )
evaluator.run(data)
print(json.dumps({"losses": losses, **evaluator.state.metrics}))
