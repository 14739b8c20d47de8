/* Where models are found. */
#include "cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_config(const char *folder)
{
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/config.json", folder);
    return length > 0 && (size_t)length < sizeof path && access(path, R_OK) == 0;
}

/* Takes candidate as the folder where it holds a model. */
static bool take(const char *candidate, char *folder, size_t size)
{
    if (!has_config(candidate) || strlen(candidate) >= size)
        return false;
    memcpy(folder, candidate, strlen(candidate) + 1);
    return true;
}

attn_status cli_find_model(const char *name, char *folder, size_t size, attn_error *error)
{
    const char *const roots[] = {getenv("ATTN_MODELS"), ATTN_SOURCE_MODELS,
                                 ATTN_INSTALLED_MODELS};
    char places[384] = "";
    if (take(name, folder, size))
        return ATTN_OK;
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        char candidate[2048];
        /* A name, not a way out of the folder of models. */
        if (!roots[i] || !*roots[i] || strchr(name, '/') || name[0] == '.')
            continue;
        const int length = snprintf(candidate, sizeof candidate, "%s/%s", roots[i], name);
        if (length > 0 && (size_t)length < sizeof candidate &&
            take(candidate, folder, size))
            return ATTN_OK;
        const size_t used = strlen(places);
        snprintf(places + used, sizeof places - used, ", %s", candidate);
    }
    return attn_error_set(error, ATTN_EIO,
                          "no model '%.80s': there is no config.json in %.80s%.320s",
                          name, name, places);
}
