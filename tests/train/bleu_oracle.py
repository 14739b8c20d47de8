"""Prints random texts as sacrebleu cuts them and random corpora with its score:
T <tab> text <tab> tokens of 13a <tab> of zh;  H <tab> hypothesis <tab> reference...;  S <tab> score.
Run by test_bleu with a seed."""
import random
import sys

import sacrebleu
from sacrebleu.metrics import BLEU

random.seed(int(sys.argv[1]))
bleu = BLEU()
chinese = BLEU(tokenize="zh")
pieces = (["the", "cat", "sat", "on", "a", "mat", "l'été", "aujourd'hui", "3", "14", "1,000",
           "3.14", "10-12", "x-y", "-5", ".", ",", "...", "!", "?", "«", "»", "\u00a0",
           "\u202f", "\u3000", "&quot;", "&amp;", "&lt;", "&gt;", "&amp;lt;", "&#39;",
           "<skipped>", "(", ")", "[a]", "{b}", "$5", "50%", "a/b", "e.g.", "U.S.A.", "–",
           "日本", "我愛你。", "，", "㐀", "\u2014", "\uff21", "\u2800", "'", '"', "_", "`", "~", "^", "\\", "|", "1.", ".5", "5-", "é.", ",é",
           "@", "#", "*", "+", "=", ";", ":", "\u200b", "\x1f", "\x0b", "ß-1", "2-ß"])


def text(low, high):
    joint = lambda: random.choice([" ", " ", " ", "", "  "])
    return "".join(random.choice(pieces) + joint() for _ in range(random.randint(low, high)))


def noisy(segment):
    words = segment.split(" ")
    for _ in range(random.randint(0, 4)):
        at = random.randrange(len(words))
        words[at:at + random.randint(0, 2)] = random.sample(pieces, random.randint(0, 2))
        words = words or ["."]
    return " ".join(words)


for _ in range(1500):
    segment = text(0, 12)
    print("T", segment, bleu.tokenizer(segment.rstrip()),
          chinese.tokenizer(segment.rstrip()), sep="\t")
for corpus in range(120):
    rows = []
    for _ in range(random.randint(1, 25)):
        base = text(0 if corpus % 3 == 0 else 4, random.choice([3, 12, 40]) + 4)
        hypothesis = noisy(base) if corpus % 5 else text(0, 6)
        rows.append([hypothesis] + [noisy(base) for _ in range(random.randint(1, 4))])
    most = max(map(len, rows))
    streams = [[row[n] if n < len(row) else None for row in rows] for n in range(1, most)]
    score = sacrebleu.corpus_bleu([row[0] for row in rows], streams, force=True).score
    for row in rows:
        print("H", *row, sep="\t")
    print("S", repr(score), sep="\t")
