/* The languages of a translator, to be shown; "" where they are not known. */
#ifndef ATTN_MODEL_LANGUAGES_H
#define ATTN_MODEL_LANGUAGES_H

enum { ATTN_LANGUAGE_BYTES = 16 };
typedef struct attn_languages {
    char source[ATTN_LANGUAGE_BYTES], target[ATTN_LANGUAGE_BYTES];
} attn_languages;

#endif
