"""The Trainer of transformers: two epochs, evaluation, a checkpoint."""

import json
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 32, (16, 8))]
config = GPT2Config(
    vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0,
    embd_pdrop=0.0, attn_pdrop=0.0,
)  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, num_train_epochs=2, per_device_train_batch_size=4, learning_rate=1e-2,
        logging_steps=1, report_to=[], save_strategy="epoch", use_cpu=True, seed=3,
        disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        model=GPT2LMHeadModel(config), args=arguments, train_dataset=rows, eval_dataset=rows
    )
    trainer.train()
    evaluation = trainer.evaluate()["eval_loss"]
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
assert losses[-1] < losses[0]
print(json.dumps({"losses": losses, "evaluation": evaluation}))
