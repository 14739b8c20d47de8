#!/bin/sh
# Installs the packages that building and testing need and that are missing; where that is
# not allowed, names them and stops.  `sh scripts/dependencies.sh NAME…` adds further ones.
# docs/dependencies.md says what each is for.
set -eu
wanted="gcc libc6-dev pkg-config meson ninja-build libopenblas-dev libjansson-dev
libutf8proc-dev libpcre2-dev liblzma-dev zlib1g-dev libpng-dev libpthreadpool-dev librsvg2-dev libcmocka-dev
fonts-dejavu-core $*"

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    # Not Debian: the build names what it does not find.
    exit 0
fi

missing=
for package in $wanted; do
    case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true) in
    *' installed') ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root='sudo -n'
else
    echo "These packages are missing, and installing them takes root:" >&2
    echo "    apt-get install$missing" >&2
    exit 1
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086
if ! { $as_root apt-get update -qq &&
    $as_root apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
