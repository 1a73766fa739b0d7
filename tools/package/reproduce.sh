#!/bin/sh
# Two builds of the sources of this commit, in two folders, as two users would make them: the packages must be the same bytes.
set -eu
cd "$(dirname "$0")/../.."
command -v git >/dev/null || { echo "reproduce: git is missing" >&2; exit 1; }
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
BATON_COMMIT=$(git rev-parse --short=12 HEAD)
export SOURCE_DATE_EPOCH BATON_COMMIT
for side in a some/longer/path/b; do
    mkdir -p "$top/$side"
    git archive HEAD | tar -x -C "$top/$side"
    (cd "$top/$side" && umask 027 && make -s -j"$(nproc)" daemons && tools/package/deb.sh build && tools/package/tarball.sh build) >"$top/out" 2>&1 ||
        { cat "$top/out" >&2; exit 1; }
done
status=0
for package in "$top"/a/build/baton*.deb "$top"/a/build/baton*.tar.xz; do
    other=$top/some/longer/path/b/build/$(basename "$package")
    if cmp -s "$package" "$other"; then
        echo "same: $(sha256sum "$package" | cut -d ' ' -f 1) $(basename "$package")"
    else
        echo "not the same: $(basename "$package")" >&2
        status=1
    fi
done
exit $status
