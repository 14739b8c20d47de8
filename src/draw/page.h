/* The page's fixed style and script, from page.css and page.js by embed.py. */
#ifndef ATTN_DRAW_PAGE_H
#define ATTN_DRAW_PAGE_H

extern const char attn_page_style[];
extern const char attn_page_script[];
extern const char attn_page_script_digest[]; /* "sha256-…": for the page's policy */

#endif
