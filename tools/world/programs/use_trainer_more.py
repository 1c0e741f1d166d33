"""Trainer: label smoothing, schedules, accumulation, evaluation, the best checkpoint, resuming."""

import json
import tempfile
import warnings

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

warnings.simplefilter("ignore")
CONFIG = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=2,
)
found = {}


class Rows(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, 40, (n, 8), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "labels": (self.tokens[i].sum() % 2).long()}


class Count(TrainerCallback):
    steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        Count.steps += 1


for name, settings in {
    "smoothing": {"label_smoothing_factor": 0.1, "lr_scheduler_type": "cosine", "warmup_steps": 2},
    "accumulation": {"gradient_accumulation_steps": 2, "max_grad_norm": 0.3, "weight_decay": 0.1},
    "checkpointing": {"gradient_checkpointing": True, "optim": "adafactor"},
    "polynomial": {"lr_scheduler_type": "polynomial", "optim": "sgd"},
}.items():
    with tempfile.TemporaryDirectory() as folder:
        set_seed(0)
        model = BertForSequenceClassification(CONFIG)
        arguments = TrainingArguments(
            folder,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=8,
            learning_rate=1e-2,
            report_to=[],
            logging_steps=1,
            eval_strategy="epoch",
            save_strategy="epoch",
            load_best_model_at_end=True,
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            **settings,
        )
        trainer = Trainer(
            model,
            arguments,
            train_dataset=Rows(16, 0),
            eval_dataset=Rows(8, 1),
            callbacks=[Count(), EarlyStoppingCallback(2)],
            compute_metrics=lambda p: {
                "accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())
            },
        )
        trainer.train()
        logs = [
            [entry.get("loss"), entry.get("eval_loss"), entry.get("eval_accuracy")]
            for entry in trainer.state.log_history
        ]
        found[name] = [value for entry in logs for value in entry if value is not None]
        found[name].append(float(trainer.predict(Rows(4, 2)).predictions.sum()))
        if name == "smoothing":
            set_seed(0)
            again = Trainer(
                BertForSequenceClassification(CONFIG),
                arguments,
                train_dataset=Rows(16, 0),
                eval_dataset=Rows(8, 1),
            )
            again.args.num_train_epochs = 3
            again.train(resume_from_checkpoint=True)
            found["resumed"] = [again.state.global_step, float(again.evaluate()["eval_loss"])]
found["steps"] = Count.steps
print(json.dumps(found))
