/* A record for attn look: from whatever kind of model a folder holds. */
#ifndef ATTN_CLI_LOOK_RECORD_H
#define ATTN_CLI_LOOK_RECORD_H

#include "inspect/record.h"

typedef struct look_request {
    const char *model; /* a name or a folder; NULL: the one that is shipped */
    const char *text;  /* or the file of a picture, for a captioner */
    size_t length;
    bool is_picture;
    const char *translation; /* or caption: to look at in place of the model's, or NULL */
    int64_t beams;           /* 0: as usual */
} look_request;

attn_status look_make_record(const look_request *request, attn_record **record,
                             attn_error *error);

/* The same from a folder with a model that reads one text; type is config.json's
 * model_type. */
attn_status look_read_text_model(const look_request *request, const char *folder,
                                 const char *name, const char *type,
                                 attn_context *context, attn_record **record,
                                 attn_error *error);

#endif
