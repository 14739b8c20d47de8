/* Where models and data are found. */
#define _XOPEN_SOURCE 700 /* scandir */
#include "base/context.h"
#include "cli/cli.h"
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRAINED = 0, ROOTS = 4 };

/* The folders that have models by name, the first first; NULL or "" is none. */
static void name_roots(const char *roots[ROOTS])
{
    roots[TRAINED] = "trained"; /* where attn train puts them */
    roots[1] = getenv("ATTN_MODELS");
    roots[2] = ATTN_SOURCE_MODELS;
    roots[3] = ATTN_INSTALLED_MODELS;
}

/* Whether root/name, or name alone where root is "", holds a model; its path in folder.
 * Where that is too long nothing can be. */
static bool find(const char *root, const char *name, char *folder)
{
    char config[ATTN_PATH_BYTES];
    attn_error error;
    return attn_path_join(folder, root, name, &error) == ATTN_OK &&
           attn_path_join(config, folder, "config.json", &error) == ATTN_OK &&
           access(config, R_OK) == 0;
}

/* A text that grows up to its limit. */
struct list {
    char text[320];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void add(struct list *list,
                                                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t room = sizeof list->text - list->length;
    const int length = vsnprintf(list->text + list->length, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        list->length += (size_t)length < room ? (size_t)length : room - 1;
}

/* Names of models in roots[at]; those that an earlier root has are there already. */
static void add_models(struct list *list, const char *const roots[ROOTS], size_t at)
{
    struct dirent **entries;
    char folder[ATTN_PATH_BYTES];
    const int count = scandir(roots[at], &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        const char *const name = entries[i]->d_name;
        bool is_new = name[0] != '.' && find(roots[at], name, folder);
        for (size_t before = 0; before < at && is_new; before++)
            is_new = !roots[before] || !find(roots[before], name, folder);
        if (is_new)
            add(list, "%s%s", list->length > 0 ? ", " : "", name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

static bool is_same(const char *one, const char *other)
{
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* A training is named by its recipe, as the shipped model is that came of it. */
static void say_which(const char *const roots[ROOTS], const char *name,
                      const char *folder)
{
    char other[ATTN_PATH_BYTES];
    for (size_t i = TRAINED + 1; i < ROOTS; i++)
        if (roots[i] && *roots[i] && find(roots[i], name, other) &&
            !is_same(folder, other)) {
            cli_say("attn: using %s and not %s (give that path for it)\n", folder, other);
            return;
        }
}

attn_status cli_find_model(const char *name, char *folder, attn_error *error)
{
    const char *roots[ROOTS];
    struct list places = {{0}, 0}, models = {{0}, 0};
    /* A name, not a way out of the folder of models. */
    const bool is_name = *name && !strchr(name, '/') && name[0] != '.';
    name_roots(roots);
    ATTN_TRY(attn_path_join(folder, name, "config.json", error)); /* nowhere would do */
    if (*name && find("", name, folder))
        return ATTN_OK;
    for (size_t i = 0; i < ROOTS; i++) {
        if (!roots[i] || !*roots[i])
            continue;
        if (is_name && find(roots[i], name, folder)) {
            if (i == TRAINED)
                say_which(roots, name, folder);
            return ATTN_OK;
        }
        add(&places, "%s%s", places.length > 0 ? ", " : "", roots[i]);
        add_models(&models, roots, i);
    }
    return attn_error_set(error, ATTN_EIO,
                          "no model '%.80s': it is no folder with a config.json, nor a "
                          "model in %.200s; models there: %.130s",
                          name, places.text, models.length > 0 ? models.text : "none");
}

attn_status cli_find_data(const char *file, char *path, attn_error *error)
{
    return strcmp(file, "-") == 0 ? attn_path_join(path, "", file, error)
                                  : attn_path_data(path, file, file, "here", error);
}
