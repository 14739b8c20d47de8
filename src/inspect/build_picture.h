/* A record from a captioner: what it writes about a picture, and where in the picture it
 * looked with each word. */
#ifndef ATTN_INSPECT_BUILD_PICTURE_H
#define ATTN_INSPECT_BUILD_PICTURE_H

#include "file/picture.h"
#include "inspect/record.h"
#include "model/captioner.h"
#include "text/tokenizer.h"

typedef struct attn_picture_request {
    attn_captioner *captioner; /* is only read */
    const attn_tokenizer *tokenizer;
    attn_context *context;
    const char *model;   /* a name to show */
    const char *caption; /* to look at in place of the model's own, or NULL */
    attn_search_options search;
} attn_picture_request;

/**
 * @param name  of the picture, to show.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EFORMAT: a caption that is not UTF-8, or longer
 *         than the model's positions, or a picture of another size than the model's (the
 *         message has both).
 */
ATTN_CHECKED attn_status attn_record_build_picture(attn_record **record,
                                                   const attn_picture_request *request,
                                                   const attn_picture *picture,
                                                   const char *name, attn_error *error);

/** ATTN_OK, or ATTN_EFORMAT where the picture has not the captioner's size. */
ATTN_CHECKED attn_status attn_check_picture(const attn_captioner *captioner,
                                            const attn_picture *picture, const char *name,
                                            attn_error *error);

#endif
