/* What heads do, in words.  A legend names the letters that occur and no others. */
#include "draw/roles.h"
#include "inspect/sentence.h"

/* No line of a legend ends within a role. */
static const char no_break_space[] = "\u00A0";

static bool is_sized(attn_role role)
{
    return role != ATTN_ROLE_MIXED && role != ATTN_ROLE_BROAD;
}

attn_roles attn_roles_of(const attn_record *record, const attn_summary *summary, int kind)
{
    attn_roles roles = {0};
    int64_t count = 0;
    for (int64_t p = 0; p < record->part_count; p++) {
        const attn_record_part *const part = &record->parts[p];
        if (kind >= 0 && (int)part->part != kind)
            continue;
        for (int64_t i = 0; i < part->layers * part->heads; i++) {
            const attn_head_summary *const head = &summary->parts[p].heads[i];
            roles.occurs[head->role] = true;
            roles.sized = roles.sized || is_sized(head->role);
            roles.only = count++ == 0 ? head : NULL;
        }
    }
    return roles;
}

const char *attn_roles_title(const attn_roles *roles)
{
    return roles->only != NULL ? "What the head does" : "What the heads do";
}

void attn_put_role_letter(attn_buffer *buffer, const attn_head_summary *head)
{
    const char letter = attn_role_letter(head);
    if (letter)
        attn_buffer_put_bytes(buffer, &letter, 1);
    else
        attn_buffer_put(buffer, "·");
}

void attn_put_role(attn_buffer *buffer, const attn_head_summary *head)
{
    static const char *const phrases[ATTN_ROLES] = {
        [ATTN_ROLE_MIXED] = "mixed",      [ATTN_ROLE_PREVIOUS] = "previous word",
        [ATTN_ROLE_NEXT] = "next word",   [ATTN_ROLE_OWN] = "own word",
        [ATTN_ROLE_FIRST] = "first word", [ATTN_ROLE_DELIMITER] = "delimiters",
        [ATTN_ROLE_SAME] = "same word",   [ATTN_ROLE_BROAD] = "broad"};
    if (is_sized(head->role) && !head->strong)
        attn_buffer_put(buffer, "leans to ");
    attn_buffer_put(buffer, phrases[head->role]);
    if (is_sized(head->role)) {
        attn_buffer_put(buffer, " ");
        attn_put_weight(buffer, head->mass);
    }
}

void attn_put_role_names(attn_buffer *buffer, const attn_roles *roles, const char *space,
                         const char *between)
{
    static const char *const names[ATTN_ROLES] = {[ATTN_ROLE_PREVIOUS] = "P previous",
                                                  [ATTN_ROLE_NEXT] = "N next",
                                                  [ATTN_ROLE_OWN] = "O own",
                                                  [ATTN_ROLE_FIRST] = "F first",
                                                  [ATTN_ROLE_DELIMITER] = "D delimiter",
                                                  [ATTN_ROLE_SAME] = "S same word",
                                                  [ATTN_ROLE_BROAD] = "B broad"};
    bool follows = false;
    for (int role = 0; role < ATTN_ROLES; role++) {
        if (!roles->occurs[role] || names[role] == NULL)
            continue;
        attn_buffer_put(buffer, follows ? between : "");
        for (const char *at = names[role]; *at; at++)
            if (*at == ' ')
                attn_buffer_put(buffer, space);
            else
                attn_buffer_put_bytes(buffer, at, 1);
        follows = true;
    }
}

/* From when on a letter stands: " Capital: …; B: …." */
static void put_conventions(attn_buffer *buffer, const attn_roles *roles,
                            const attn_conventions *conventions)
{
    const char *before = " ";
    if (roles->sized) {
        const long long tenths = (long long)(conventions->lift * 10 + 0.5);
        attn_buffer_put(buffer, " Capital: ");
        attn_put_weight(buffer, conventions->strong);
        attn_buffer_put(buffer, " of the weight or more; small: ");
        attn_put_weight(buffer, conventions->weak);
        attn_buffer_print(buffer, " or more and %lld.%lld × an even spread", tenths / 10,
                          tenths % 10);
        before = "; ";
    }
    if (roles->occurs[ATTN_ROLE_BROAD]) {
        attn_buffer_print(buffer, "%sB: entropy ", before);
        attn_put_weight(buffer, conventions->broad);
        attn_buffer_put(buffer, " or more");
        before = "; ";
    }
    if (roles->occurs[ATTN_ROLE_SAME])
        attn_buffer_print(buffer, "%sS: over at least %lld rows", before,
                          (long long)conventions->same_rows);
    if (roles->sized || roles->occurs[ATTN_ROLE_BROAD])
        attn_buffer_put(buffer, ".");
}

void attn_put_letters(attn_buffer *buffer, const attn_roles *roles,
                      const attn_conventions *conventions)
{
    if (roles->only != NULL) {
        attn_put_role_letter(buffer, roles->only);
        attn_buffer_put(buffer, no_break_space);
        attn_put_role(buffer, roles->only);
        attn_buffer_put(buffer, ".");
        return;
    }
    const size_t begin = buffer->length;
    attn_put_role_names(buffer, roles, no_break_space, ", ");
    if (roles->occurs[ATTN_ROLE_MIXED]) {
        attn_buffer_put(buffer, buffer->length > begin ? ", ·" : "·");
        attn_buffer_put(buffer, no_break_space);
        attn_buffer_put(buffer, "mixed");
    }
    if (buffer->length > begin)
        attn_buffer_put(buffer, ".");
    put_conventions(buffer, roles, conventions);
}
