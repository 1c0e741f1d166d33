"""A LightningModule: fit, validate, a checkpoint, predict."""

import json
import logging
import tempfile
import warnings

import lightning as L
import torch
from torch import nn

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Net(L.LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))
        self.losses = []

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.mse_loss(self.layers(x), y)
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self.layers(x), y))

    def predict_step(self, batch, index):
        return self.layers(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


L.seed_everything(0, verbose=False)
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = torch.utils.data.DataLoader(data, batch_size=8)
with tempfile.TemporaryDirectory() as folder:
    trainer = L.Trainer(
        max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
        default_root_dir=folder, enable_model_summary=False, gradient_clip_val=1.0,
    )  # fmt: skip
    net = Net()
    trainer.fit(net, loader, loader)
    trainer.save_checkpoint(folder + "/last.ckpt")
    again = Net.load_from_checkpoint(folder + "/last.ckpt", weights_only=False)
    predicted = trainer.predict(again, loader)
validation = trainer.validate(net, loader, verbose=False)[0]["val_loss"]
found = {"losses": net.losses, "validation": validation}
print(json.dumps({**found, "predicted": torch.cat(predicted).flatten().tolist()}))
