"""Writes the tokenizer of a model file in Hugging Face's form, which lm-eval counts a context's tokens by."""

import sys

from gguf import GGUFReader
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

model, directory = sys.argv[1:]
fields = {name.removeprefix("tokenizer.ggml."): field for name, field in GGUFReader(model).fields.items()}
assert fields["model"].contents() == "gpt2", "byte-level BPE"
tokens = fields["tokens"].contents()
merges = [tuple(merge.split(" ")) for merge in fields["merges"].contents()]
tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
end = tokens[fields["eos_token_id"].contents()]
PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, bos_token=end).save_pretrained(directory)
