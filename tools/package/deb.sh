#!/bin/sh
# Makes build/baton_VERSION_ARCH.deb of what is built: tools/package/deb.sh BUILD
# The same sources give the same bytes: times are SOURCE_DATE_EPOCH's (default: that of the commit), owners root's, order the alphabet's.
set -eu
export LC_ALL=C TZ=UTC
cd "$(dirname "$0")/../.."
build=$1
pkg=tools/package
for tool in dpkg-deb strip gzip; do command -v $tool >/dev/null || { echo "deb: $tool is missing" >&2; exit 1; }; done
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1790000000)}
export SOURCE_DATE_EPOCH
version=$(sed -n 's/^#define BATON_VERSION "\(.*\)"/\1/p' common/base/build.h)-1
maintainer=${DEB_MAINTAINER:-The Baton authors <baton@example.org>}
arch=$(dpkg --print-architecture)
out=$build/baton_${version}_$arch.deb
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
umask 022
chmod 755 "$tree"
$pkg/tree.sh "$build" "$tree"

# The packages that the libraries' own say programs need.
depends=$(for program in "$tree"/usr/bin/*; do
    [ -L "$program" ] || objdump -p "$program" 2>/dev/null | awk '$1 == "NEEDED" { print $2 }'
done | sort -u | while read -r so; do
    grep -sh "^${so%%.so.*} ${so#*.so.} " /var/lib/dpkg/info/*:"$arch".shlibs /var/lib/dpkg/info/*.shlibs | head -n 1 | cut -d ' ' -f 3-
done | sort -u | sed 's/^/, /' | tr -d '\n')

doc=$tree/usr/share/doc/baton
install -d "$doc" "$tree/DEBIAN"
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: Baton\n\nFiles: *\nCopyright: The Baton authors\nLicense: Apache-2.0\n'
    printf ' On Debian systems the full text of the licence is in /usr/share/common-licenses/Apache-2.0.\n\n'
    printf 'Files: usr/share/baton/models/*\nCopyright: The Baton authors\nLicense: Apache-2.0\nComment: the texts that the models were trained on are in the public domain\n (usr/share/baton/models/fable/SOURCES.md)\n'
} >"$doc/copyright"
printf 'baton (%s) unstable; urgency=medium\n\n  * Release %s.\n\n -- %s  %s\n' "$version" "$version" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" |
    gzip -9n >"$doc/changelog.Debian.gz"
chmod 644 "$doc"/*
install -d "$tree/usr/share/lintian/overrides"
install -m 644 $pkg/debian/overrides "$tree/usr/share/lintian/overrides/baton"

(cd "$tree" && find etc -type f | sort | sed 's#^#/#') >"$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 $pkg/debian/$script "$tree/DEBIAN/$script"; done
size=$(find "$tree" -path "$tree/DEBIAN" -prune -o -type f -printf '%s\n' | awk '{ n += int(($1 + 1023) / 1024) } END { print n }')
cat >"$tree/DEBIAN/control" <<CONTROL
Package: baton
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $size
Depends: adduser$depends
Recommends: openssl
Section: net
Priority: optional
Description: serving of large language models on CPUs, prefill and decode apart
 Baton serves large language models on ordinary CPU machines. A coordinator
 takes the requests of clients of many families (OpenAI, Anthropic, Ollama,
 TGI, vLLM, Triton and more) and sends each prompt to a prefill instance,
 which hands its KV cache to a decode instance that streams the answer.
 .
 This package has the daemons with a systemd unit for each instance, the tool
 batonctl (also as baton), and a small model to try it with.
CONTROL
(cd "$tree" && find . -path ./DEBIAN -prune -o -type f -print | sort | sed 's#^\./##' | xargs md5sum) >"$tree/DEBIAN/md5sums"
chmod 644 "$tree/DEBIAN/conffiles" "$tree/DEBIAN/control" "$tree/DEBIAN/md5sums"
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
rm -f "$out"
dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --threads-max=1 -b "$tree" "$out" >/dev/null
echo "$out"
