#!/usr/bin/env python3
"""Writes page.css and the page's scripts as C arrays, for the page that html.c writes.

usage: embed.py OUT.c page.css page_map.js page.js

Comments, indentation and the spaces around operators go; strings, templates and line ends
stay.  With the script comes its SHA-256, so that the page can allow this script and no other.
"""
import base64
import hashlib
import re
import sys

# What must stay as it is, or a comment, or space around an operator; a template may hold ${…}
# with strings but no template of its own.
PIECES = {
    "css": r'("[^"]*")|(/\*.*?\*/)|[ \t]*([{};,>])\s*|(?<=:)\s+|\n\s*',
    "js": r"('(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|((?:^|(?<=\s))//[^\n]*|/\*.*?\*/)"
          r"|[ \t]*([=<>!?:,;(){}\[\]&|*%]|(?<= )/(?= )|(?<!\+)(?<!\+ )\+(?! ?\+)"
          r"|(?<!-)(?<!- )-(?! ?-))[ \t]*|\s*(\n)\s*",
}


def squeezed(text, kind):
    def shorter(match):
        groups = match.groups()
        return groups[0] or "".join(g or "" for g in groups[2:])
    text = re.sub(PIECES[kind], shorter, text, flags=re.S | re.M)
    return re.sub(r"\n\s*", "\n", text).strip()


def c_string(name, text):
    """As characters one by one: C promises string literals of 4095 bytes, no more."""
    code = [str(b) if b < 128 else f"'\\{b:03o}'" for b in text.encode() + b"\0"]
    lines = [",".join(code[i:i + 24]) for i in range(0, len(code), 24)]
    return f"const char {name}[] = {{\n" + ",\n".join(lines) + "};\n"


def main():
    out, css, *scripts = sys.argv[1:]
    with open(css, encoding="utf-8") as file:
        style = squeezed(file.read(), "css")
    script = "\n"
    for path in scripts:
        with open(path, encoding="utf-8") as file:
            script += squeezed(file.read(), "js") + "\n"
    if "</" in script + style or "<!--" in script + style:
        sys.exit("embed.py: the page's script or style would end its own element")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    with open(out, "w", encoding="ascii") as file:
        file.write('#include "draw/page.h"\n\n' + c_string("attn_page_style", style) + "\n"
                   + c_string("attn_page_script", script) + "\n"
                   + c_string("attn_page_script_digest", "sha256-" + digest))


main()
