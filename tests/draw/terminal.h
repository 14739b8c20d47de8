/* What tests of the terminal picture share. */
#ifndef ATTN_TESTS_DRAW_TERMINAL_H
#define ATTN_TESTS_DRAW_TERMINAL_H

#include "draw/draw.h"
#include "tests/inspect/hand.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char *draw(attn_record *record, const attn_draw_options *options);
attn_draw_options plain(void);

#endif
