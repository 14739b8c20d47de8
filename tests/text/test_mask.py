"""Checks with the `tokenizers` package what test_mask left in a folder: tokenizer.json of an
encoder, and in expected.txt the ids of "The cat", " on", "!" and the mask."""
import sys

from tokenizers import Tokenizer

folder = sys.argv[1]
tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
before, after, bang, mask = ([int(i) for i in line.split()] for line in open(folder + "/expected.txt"))
assert tokenizer.token_to_id("<mask>") == mask[0] == tokenizer.get_vocab_size() - 1
got = tokenizer.encode("The cat <mask> on")
assert got.ids == [0] + before + mask + after + [2], got.ids
assert set(got.type_ids) == {0}
got = tokenizer.encode("The cat", "!")
assert got.ids == [0] + before + [2] + bang + [2], got.ids
assert got.type_ids == [0] * (len(before) + 2) + [1] * (len(bang) + 1), got.type_ids
assert tokenizer.decode(got.ids) == "The cat!"
