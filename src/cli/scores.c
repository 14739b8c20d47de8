/* Scores as lines for people: the names of scores.json in words. */
#include "cli/scores.h"
#include "cli/cli.h"
#include "text/words.h"
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 64, NAME_COLUMNS = 20, VALUE_COLUMNS = 12 };

static const struct figure {
    const char *key, *name, *meaning;
} figures[] = {
    {"accuracy", "accuracy", "share that is right"},
    {"macro_f1", "macro F1", "mean of the labels' F1"},
    {"f1", "F1", ""},
    {"loss", "loss", "nats each, mean"},
    {"perplexity", "perplexity", "e^loss, a token"},
    {"perplexity_word", "perplexity of words", "the same, a word"},
    {"bits_byte", "bits", "a byte of text"},
    {"pseudo_perplexity", "pseudo-perplexity", "each token hidden alone"},
    {"cut_texts", "texts cut", "longer than the positions, read in parts"},
    {"lines_split", "lines split", "longer than the positions, read in parts"},
    {"unseen_words", "unseen words", "that the training data have not"},
    {"unseen_accuracy", "accuracy of these", "share that is right"},
    {"tokens_per_second", "speed", "tokens a second, read"},
    {"exact", "exact", "share of captions right word for word"},
    {"cells_right", "cells right", "share of cells"},
    {"attention_in_cell", "attention in cell", "share of a digit's, in its own"},
    {"attention_in_cell_if_even", "if it were even", "the same"},
    {"pictures_watched", "pictures watched", "whose attention was read"},
    {"unfinished", "unfinished", "captions that did not end"},
    {"pairs", "pairs", "a good text and a bad one; accuracy: good likelier"},
    {"labels", "label", ""},
    {"paradigms", "kind of pairs", ""},
};

static struct figure figure_of(const char *key, char name[NAME_BYTES])
{
    for (size_t n = 0; n < sizeof figures / sizeof *figures; n++)
        if (strcmp(key, figures[n].key) == 0)
            return figures[n];
    snprintf(name, NAME_BYTES, "%s", key);
    for (char *c = name; (c = strchr(c, '_'));)
        *c = ' ';
    return (struct figure){key, name, ""};
}

static void print_text(const char *text)
{
    const size_t own = attn_text_columns(text);
    printf("%*s", own < VALUE_COLUMNS ? (int)(VALUE_COLUMNS - own) : 0, "");
    cli_print(text, strlen(text));
}

static void print_value(const json_t *value)
{
    const double number = json_number_value(value);
    if (json_is_integer(value) || (json_is_real(value) && number >= 1000.0))
        printf("%*.0f", VALUE_COLUMNS, number);
    else if (json_is_real(value))
        printf("%*.4f", VALUE_COLUMNS, number);
    else if (json_is_string(value))
        print_text(json_string_value(value));
    else
        print_text(json_is_null(value)   ? "not finite"
                   : json_is_true(value) ? "yes"
                                         : "no");
}

static void print_name(const char *name, size_t columns)
{
    const size_t own = attn_text_columns(name);
    cli_print(name, strlen(name));
    printf("%*s", own < columns ? (int)(columns - own) : 0, "");
}

/* The members' own names, labels for example, are printed as they are. */
static void print_table(const char *key, json_t *members)
{
    char name[NAME_BYTES];
    const char *member, *column;
    json_t *values, *value;
    size_t columns = NAME_COLUMNS;
    json_object_foreach(members, member, values)
    {
        const size_t own = attn_text_columns(member);
        columns = own > columns ? own : columns;
    }
    values = json_object_iter_value(json_object_iter(members));
    printf("\n");
    print_name(figure_of(key, name).name, json_is_object(values) ? columns : 0);
    json_object_foreach(values, column, value)
        printf("%*s", VALUE_COLUMNS, figure_of(column, name).name);
    printf("\n");
    json_object_foreach(members, member, values)
    {
        print_name(member, columns);
        json_object_foreach(values, column, value) print_value(value);
        if (!json_is_object(values))
            print_value(values);
        printf("\n");
    }
}

void cli_print_scores(const json_t *scores)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)scores, key, value)
    {
        char name[NAME_BYTES];
        const struct figure figure = figure_of(key, name);
        if (json_is_object(value))
            continue;
        print_name(figure.name, NAME_COLUMNS);
        print_value(value);
        printf("%s%s\n", *figure.meaning ? "  " : "", figure.meaning);
    }
    json_object_foreach((json_t *)scores, key, value) if (json_is_object(value))
        print_table(key, value);
}
