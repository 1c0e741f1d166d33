"""pytorch_lightning: accumulation, clipping, schedules, weight averaging, checkpoints."""

import json
import logging
import tempfile
import warnings

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import (
    EarlyStopping,
    ModelCheckpoint,
    StochasticWeightAveraging,
)

warnings.simplefilter("ignore")

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
pl.seed_everything(1)
losses = []


class Net(pl.LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(5, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        loss = (self(batch[0]) - batch[1]).pow(2).mean()
        self.log("loss", loss, on_epoch=True)
        losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        self.log("valid", (self(batch[0]) - batch[1]).pow(2).mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
                "interval": "epoch",
            },
        }


x = torch.randn(64, 5)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8
)
with tempfile.TemporaryDirectory() as folder:
    best = ModelCheckpoint(dirpath=folder, monitor="valid", save_last=True)
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=2,
        gradient_clip_val=0.5,
        callbacks=[
            best,
            EarlyStopping("valid"),
            StochasticWeightAveraging(0.01, swa_epoch_start=2),
        ],
    )
    trainer.fit(Net(), loader, loader)
    again = Net.load_from_checkpoint(best.best_model_path)
    value = trainer.validate(again, loader, verbose=False)[0]["valid"]
print(json.dumps([losses, float(value), again.hparams.width, float(best.best_model_score)]))
