#!/bin/sh
# Makes build/baton-VERSION-linux-ARCH.tar.xz: the programs with the libraries that they need beside the C library, so that it runs on any Linux of
# this processor with a C library as new as this one's. tools/package/tarball.sh BUILD
set -eu
export LC_ALL=C TZ=UTC
cd "$(dirname "$0")/../.."
build=$1
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1790000000)}
version=$(sed -n 's/^#define BATON_VERSION "\(.*\)"/\1/p' common/base/build.h)
name=baton-$version-linux-$(uname -m)
out=$build/$name.tar.xz
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
umask 022
tools/package/tree.sh "$build" "$top/root"
tree=$top/$name
mkdir -p "$tree/lib/baton"
mv "$top/root/usr/bin" "$tree/lib/baton/bin"
mv "$top/root/usr/share" "$tree/share"
mkdir "$tree/bin"
# Programs find each other by their own place, so the real ones stay together, and what is called sets the path of their libraries.
for program in "$tree"/lib/baton/bin/*; do
    base=$(basename "$program")
    case $base in
    baton-make-pki) mv "$program" "$tree/bin/$base"; continue ;;
    esac
    cat >"$tree/bin/$base" <<'LAUNCH'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$here/../lib/baton${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/../lib/baton/bin/$(basename "$0")" "$@"
LAUNCH
    chmod 755 "$tree/bin/$base"
    [ -L "$program" ] || ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'
done | sort -u | while read -r library; do
    case $(basename "$library") in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | ld-linux*) ;; # the system's own, and all of one piece
    *) install -m 644 "$library" "$tree/lib/baton/" ;;
    esac
done
ln -s ../../share "$tree/lib/share"
install -m 644 LICENSE README.md "$tree"
find "$top" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
(cd "$top" && find "$name" -print0 | sort -z | tar --no-recursion --null --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw,a-s --format=gnu -cf - -T -) | xz -6 -T1 >"$out"
echo "$out"
