"""Compares what test_tokenizer left in a folder with the `tokenizers` package: the same
training, the same ids of each text, the same text of ids."""
import json
import struct
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers


def records(path):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<i", data, at)
        yield data[at + 4:at + 4 + size]
        at += 4 + size


def numbers(data):
    return list(struct.unpack("<%di" % (len(data) // 4), data))


folder = sys.argv[1]
ours = Tokenizer.from_file(folder + "/tokenizer.json")
assert ours.encode("a").ids[-1] == 2, "no </s> at the end"
assert ours.encode("a</s>b").ids.count(2) == 2, "the package itself reads </s> as special"
ours.encode_special_tokens = True  # as here: a text is text
wrong = 0
count = 0
for text, ids in zip(records(folder + "/texts"), records(folder + "/ids")):
    count += 1
    theirs = ours.encode(text.decode(), add_special_tokens=False).ids
    if theirs != numbers(ids):
        wrong += 1
        print("ids of", repr(text.decode())[:100], theirs[:12], numbers(ids)[:12])
for ids, text in zip(records(folder + "/some"), records(folder + "/decoded")):
    count += 1
    theirs = ours.decode(numbers(ids), skip_special_tokens=True)
    if theirs != text.decode():
        wrong += 1
        print("text of", numbers(ids), repr(theirs), repr(text.decode()))

theirs = Tokenizer(models.BPE())
theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
trainer = trainers.BpeTrainer(
    vocab_size=ours.get_vocab_size(), min_frequency=2, show_progress=False,
    special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
theirs.train_from_iterator([t.decode() for t in records(folder + "/trained")], trainer)


def model(tokenizer):
    m = json.loads(tokenizer.to_str())["model"]
    return m["vocab"], [tuple(x) for x in m["merges"]]


if model(ours) != model(theirs):
    wrong += 1
    print("the package learns something else")
print(count, "compared,", wrong, "differ")
sys.exit(wrong > 0)
