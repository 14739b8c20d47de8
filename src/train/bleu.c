/* Counts of matching n-grams.  The words of a sentence and its references become numbers;
 * the n-grams of a text are sorted, so that equal ones are neighbours and a match is a
 * walk along two sorted lists. */
#include "train/bleu.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct gram {
    int32_t words[ATTN_BLEU_ORDERS]; /* −1 beyond its order */
};

struct words {
    char *text;    /* tokenized; cut at the spaces */
    int32_t *list; /* numbers of the words */
    size_t length;
    struct gram *grams; /* [length], work space */
};

struct word {
    const char *text;
    int32_t *number; /* where it goes */
};

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct word *)a)->text, ((const struct word *)b)->text);
}

static int by_words(const void *a, const void *b)
{
    const struct gram *const left = a, *const right = b;
    for (size_t n = 0; n < ATTN_BLEU_ORDERS; n++)
        if (left->words[n] != right->words[n])
            return left->words[n] < right->words[n] ? -1 : 1;
    return 0;
}

static bool tokenize(struct words *words, const char *text, attn_bleu_words how)
{
    words->text = attn_bleu_tokenize(text, how);
    if (!words->text)
        return false;
    size_t length = *words->text != '\0';
    for (const char *c = words->text; *c; c++)
        length += *c == ' ';
    words->length = length;
    words->list = malloc((length + 1) * sizeof *words->list);
    words->grams = malloc((length + 1) * sizeof *words->grams);
    return words->list && words->grams;
}

/* Gives equal words of all texts equal numbers. */
static bool number_words(struct words *texts, size_t count)
{
    size_t total = 0, at = 0;
    for (size_t t = 0; t < count; t++)
        total += texts[t].length;
    struct word *const all = malloc((total + 1) * sizeof *all);
    if (!all)
        return false;
    for (size_t t = 0; t < count; t++) {
        char *word = texts[t].text;
        for (size_t n = 0; n < texts[t].length; n++) {
            char *const end = word + strcspn(word, " ");
            all[at++] = (struct word){word, &texts[t].list[n]};
            word = *end ? end + 1 : end;
            *end = '\0';
        }
    }
    qsort(all, total, sizeof *all, by_text);
    int32_t number = 0;
    for (size_t n = 0; n < total; n++) {
        if (n > 0 && strcmp(all[n - 1].text, all[n].text) != 0)
            number++;
        *all[n].number = number;
    }
    free(all);
    return true;
}

/* Sorted; returns how many. */
static size_t make_grams(struct words *words, size_t order)
{
    if (words->length < order)
        return 0;
    const size_t count = words->length - order + 1;
    for (size_t n = 0; n < count; n++)
        for (size_t i = 0; i < ATTN_BLEU_ORDERS; i++)
            words->grams[n].words[i] = i < order ? words->list[n + i] : -1;
    qsort(words->grams, count, sizeof *words->grams, by_words);
    return count;
}

/* How often a sorted list has what begins at grams[at]. */
static size_t run_length(const struct gram *grams, size_t at, size_t count)
{
    size_t end = at + 1;
    while (end < count && by_words(&grams[at], &grams[end]) == 0)
        end++;
    return end - at;
}

static size_t occurrences(const struct gram *grams, size_t count, const struct gram *gram)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (by_words(&grams[middle], gram) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && by_words(&grams[low], gram) == 0 ? run_length(grams, low, count)
                                                           : 0;
}

/* texts[0] is the hypothesis.  A match counts at most as often as the reference that has
 * it most often. */
static void count_order(attn_bleu *bleu, struct words *texts, size_t count,
                        size_t *gram_counts, size_t order)
{
    for (size_t t = 0; t < count; t++)
        gram_counts[t] = make_grams(&texts[t], order);
    const struct gram *const grams = texts[0].grams;
    for (size_t n = 0; n < gram_counts[0];) {
        const size_t have = run_length(grams, n, gram_counts[0]);
        size_t most = 0;
        for (size_t t = 1; t < count; t++) {
            const size_t in = occurrences(texts[t].grams, gram_counts[t], &grams[n]);
            most = in > most ? in : most;
        }
        bleu->correct[order - 1] += (int64_t)(have < most ? have : most);
        n += have;
    }
    bleu->total[order - 1] += (int64_t)gram_counts[0];
}

static size_t distance(size_t a, size_t b)
{
    return a > b ? a - b : b - a;
}

/* The shorter one on a tie. */
static size_t nearest_length(const struct words *texts, size_t count)
{
    const size_t own = texts[0].length;
    size_t nearest = texts[1].length;
    for (size_t t = 2; t < count; t++) {
        const size_t length = texts[t].length;
        const size_t far = distance(length, own), least = distance(nearest, own);
        if (far < least || (far == least && length < nearest))
            nearest = length;
    }
    return nearest;
}

attn_status attn_bleu_add(attn_bleu *bleu, const char *hypothesis,
                          const char *const *references, size_t count, attn_error *error)
{
    if (count == 0)
        return attn_error_set(error, ATTN_EINVAL,
                              "BLEU: 0 references, expected 1 or more");
    struct words *const texts = calloc(count + 1, sizeof *texts);
    size_t *const gram_counts = calloc(count + 1, sizeof *gram_counts);
    bool done = texts && gram_counts && tokenize(&texts[0], hypothesis, bleu->words);
    for (size_t t = 0; t < count && done; t++)
        done = tokenize(&texts[t + 1], references[t], bleu->words);
    done = done && number_words(texts, count + 1);
    if (done) {
        for (size_t order = 1; order <= ATTN_BLEU_ORDERS; order++)
            count_order(bleu, texts, count + 1, gram_counts, order);
        bleu->hypothesis_length += (int64_t)texts[0].length;
        bleu->reference_length += (int64_t)nearest_length(texts, count + 1);
    }
    for (size_t t = 0; texts && t <= count; t++) {
        free(texts[t].text);
        free(texts[t].list);
        free(texts[t].grams);
    }
    free(texts);
    free(gram_counts);
    return done ? ATTN_OK : attn_error_set(error, ATTN_ENOMEM, "BLEU: out of memory");
}

double attn_bleu_brevity(const attn_bleu *bleu)
{
    if (bleu->hypothesis_length >= bleu->reference_length)
        return 1.0;
    if (bleu->hypothesis_length == 0)
        return 0.0;
    return exp(1.0 - (double)bleu->reference_length / (double)bleu->hypothesis_length);
}

double attn_bleu_score(const attn_bleu *bleu)
{
    double logarithms = 0.0, smoothing = 1.0;
    bool any = false;
    for (size_t n = 0; n < ATTN_BLEU_ORDERS; n++)
        any = any || bleu->correct[n] > 0;
    for (size_t n = 0; n < ATTN_BLEU_ORDERS; n++) {
        const double total = (double)bleu->total[n];
        if (!any || bleu->total[n] == 0)
            return 0.0;
        if (bleu->correct[n] == 0)
            smoothing *= 2.0;
        logarithms += bleu->correct[n] == 0
                          ? log(100.0 / (smoothing * total))
                          : log(100.0 * (double)bleu->correct[n] / total);
    }
    return attn_bleu_brevity(bleu) * exp(logarithms / ATTN_BLEU_ORDERS);
}
