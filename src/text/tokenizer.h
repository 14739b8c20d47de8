/* Byte-level byte-pair encoding (Sennrich et al. 2016; bytes as in GPT-2), kept in the
 * tokenizer.json of the `tokenizers` package, whose ids it reproduces. */
#ifndef ATTN_TEXT_TOKENIZER_H
#define ATTN_TEXT_TOKENIZER_H

#include "base/error.h"

typedef struct attn_tokenizer attn_tokenizer;

/** Special tokens of the models here; never made from a user's text. */
enum { ATTN_TOKEN_BOS = 0, ATTN_TOKEN_PAD = 1, ATTN_TOKEN_EOS = 2, ATTN_TOKEN_UNK = 3 };

/** One token of an encoded text, and the bytes [begin, end) of the text it covers. */
typedef struct attn_token {
    int32_t id;
    int64_t begin, end;
} attn_token;

/** Learns a vocabulary of the size (specials <s> <pad> </s> <unk> and the 256 bytes
 * included) from texts[n], by pair counts; ties go to the pair of lower ids.  Each text
 * is one sample; deterministic.  Where no pair comes twice any more, it stays smaller:
 * ask attn_tokenizer_size. */
ATTN_CHECKED attn_status attn_tokenizer_train(attn_tokenizer **tokenizer,
                                              const char *const *texts, size_t count,
                                              int64_t vocabulary, attn_error *error);
ATTN_CHECKED attn_status attn_tokenizer_load(attn_tokenizer **tokenizer, const char *path,
                                             attn_error *error);
ATTN_CHECKED attn_status attn_tokenizer_save(const attn_tokenizer *tokenizer,
                                             const char *path, attn_error *error);
void attn_tokenizer_destroy(attn_tokenizer *tokenizer);
int64_t attn_tokenizer_size(const attn_tokenizer *tokenizer);

/** What stands around a text where its model reads it. */
typedef enum attn_text_frame {
    ATTN_FRAME_END,  /* "$A </s>": what a translator reads; a new tokenizer's */
    ATTN_FRAME_BOTH, /* "<s> $A </s>": an encoder such as BERT */
    ATTN_FRAME_START /* "<s> $A": a language model, which goes on with it */
} attn_text_frame;
/** What is saved asks `tokenizers` for the frame.  Encoding here adds no special, as
 * ever. */
void attn_tokenizer_frame(attn_tokenizer *tokenizer, attn_text_frame frame);
/** Adds "<mask>", which stands for a token to be guessed, as the last id, so that all
 * others keep theirs; and the frame ATTN_FRAME_BOTH.  A tokenizer that has it stays as it
 * is. */
ATTN_CHECKED attn_status attn_tokenizer_add_mask(attn_tokenizer *tokenizer,
                                                 attn_error *error);
/** The id of "<mask>", or −1. */
int32_t attn_tokenizer_mask(const attn_tokenizer *tokenizer);

/** Texts are encoded in small letters from here on, and what is saved says so. */
void attn_tokenizer_lower_case(attn_tokenizer *tokenizer);
bool attn_tokenizer_lowers(const attn_tokenizer *tokenizer);

/** Tokens of a text of length_bytes, without </s>; *tokens is the caller's to free. Bytes
 * that are not UTF-8 are ATTN_EFORMAT, with their place.  "</s>" in a text is text, which
 * the `tokenizers` package does only with encode_special_tokens.  Any number of threads
 * may use one tokenizer. */
ATTN_CHECKED attn_status attn_tokenizer_encode(const attn_tokenizer *tokenizer,
                                               const char *text, size_t length_bytes,
                                               attn_token **tokens, size_t *count,
                                               attn_error *error);

/** ATTN_EFORMAT where what was encoded has more tokens than the model that is to read it
 * has positions for, its own marks counted off: nothing is ever cut. */
ATTN_CHECKED attn_status attn_tokens_fit(const char *what, size_t count, int64_t most,
                                         attn_error *error);

/** Text of the ids, specials left out; invalid UTF-8 becomes U+FFFD.  *text is NUL-ended
 * and the caller's to free; a byte 0 that was decoded is within it. */
ATTN_CHECKED attn_status attn_tokenizer_decode(const attn_tokenizer *tokenizer,
                                               const int32_t *ids, size_t count,
                                               char **text, attn_error *error);

/** The raw bytes of one token ("</s>" for a special), for those who join pieces to words.
 */
ATTN_CHECKED attn_status attn_tokenizer_bytes(const attn_tokenizer *tokenizer, int32_t id,
                                              const char **bytes, size_t *length,
                                              bool *special, attn_error *error);

#endif
