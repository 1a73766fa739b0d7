#!/bin/sh
# Makes the site of what is in docs/ and of the programs built under BUILD: tools/site/build.sh BUILD FOLDER (default: BUILD/docs). A broken link ends it.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
out=${2:-$build/docs}
for d in coordinator prefill decode baton; do [ -x "$build/bin/$d" ] || { echo "docs: $build/bin/$d is missing: run \`make\`" >&2; exit 1; }; done
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
/usr/bin/python3 -B tools/site/pages.py "$build" "$pages/pages"
case $out in /*) ;; *) out=$PWD/$out ;; esac
SITE_PAGES="$pages/pages" SITE_DIR="$out" PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -m mkdocs build --strict -f tools/site/mkdocs.yml >"$pages/log" 2>&1 ||
    { grep -v INFO "$pages/log" >&2; exit 1; }
