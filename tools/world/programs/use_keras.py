"""A model of Keras on its torch backend: fit, evaluate, save, load."""

import json
import os
import tempfile

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 8, 8, 1)).astype("float32")
y = (x.mean((1, 2, 3)) > 0).astype("int32")
model = keras.Sequential(
    [
        keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Flatten(),
        keras.layers.Dense(2),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
history = model.fit(x, y, epochs=2, batch_size=16, verbose=0, shuffle=False)
with tempfile.TemporaryDirectory() as folder:
    model.save(folder + "/m.keras")
    again = keras.models.load_model(folder + "/m.keras")
print(json.dumps([history.history["loss"], np.asarray(again.predict(x, verbose=0)).tolist()]))
