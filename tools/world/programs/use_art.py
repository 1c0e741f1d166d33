"""The Adversarial Robustness Toolbox."""

import json

import numpy as np
import torch
from art.attacks.evasion import FastGradientMethod, ProjectedGradientDescentPyTorch
from art.estimators.classification import PyTorchClassifier

torch.manual_seed(0)
np.random.seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
classifier = PyTorchClassifier(
    model,
    torch.nn.CrossEntropyLoss(),
    input_shape=(6,),
    nb_classes=3,
    clip_values=(0, 1),
    optimizer=torch.optim.Adam(model.parameters(), 0.01),
    device_type="cpu",
)
x = np.random.rand(32, 6).astype(np.float32)
y = np.eye(3)[np.random.randint(0, 3, 32)]
classifier.fit(x, y, batch_size=16, nb_epochs=2)
found = [float(classifier.predict(x).sum())]
found.append(float(FastGradientMethod(classifier, eps=0.1).generate(x).sum()))
found.append(
    float(
        ProjectedGradientDescentPyTorch(
            classifier, eps=0.1, eps_step=0.02, max_iter=3, verbose=False
        )
        .generate(x, y)
        .sum()
    )
)
print(json.dumps(found))
