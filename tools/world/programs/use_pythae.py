"""Autoencoders of Pythae and their trainer."""

import json
import logging
import tempfile

import torch
from pythae.models import AE, VAE, AEConfig, AutoModel, BetaVAE, BetaVAEConfig, VAEConfig
from pythae.pipelines import TrainingPipeline
from pythae.samplers import NormalSampler
from pythae.trainers import BaseTrainerConfig

logging.disable(logging.CRITICAL)
torch.manual_seed(0)
data = torch.rand(32, 1, 4, 4)
found = []
for make, config in ((AE, AEConfig), (VAE, VAEConfig), (BetaVAE, BetaVAEConfig)):
    torch.manual_seed(0)
    model = make(config(input_dim=(1, 4, 4), latent_dim=2))
    with tempfile.TemporaryDirectory() as folder:
        settings = BaseTrainerConfig(
            output_dir=folder,
            learning_rate=1e-3,
            per_device_train_batch_size=16,
            num_epochs=2,
            no_cuda=True,
        )
        TrainingPipeline(model=model, training_config=settings)(train_data=data)
        model.save(folder + "/own")
        again = AutoModel.load_from_folder(folder + "/own")
    found.append([p.abs().sum().item() for p in again.parameters()][:6])
    if make is not AE:
        torch.manual_seed(1)
        found.append(NormalSampler(model).sample(2).sum().item())
print(json.dumps(found))
