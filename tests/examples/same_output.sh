#!/bin/sh
# A program ends well and prints exactly what the file holds.
printed=$($MESON_EXE_WRAPPER "$1") || exit 1
printf '%s\n' "$printed" | diff "$2" - >&2
