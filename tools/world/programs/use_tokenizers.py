"""A tokenizer of tokenizers behind a fast tokenizer of transformers, with tensors."""

import json

from transformers import PreTrainedTokenizerFast

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

tokenizer = Tokenizer(models.BPE(unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
words = ["the cat sat on the mat", "the dog sat on the log"] * 5
special = ["?", "[PAD]"]
tokenizer.train_from_iterator(words, trainers.BpeTrainer(vocab_size=60, special_tokens=special))
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?", pad_token="[PAD]")
batch = fast(["the cat", "the dog sat on the mat"], return_tensors="pt", padding=True)
text = fast.batch_decode(batch["input_ids"], skip_special_tokens=True)
assert "dog" in text[1]
print(json.dumps([batch["input_ids"].tolist(), batch["attention_mask"].tolist()]))
