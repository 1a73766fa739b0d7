#!/bin/sh
# Unpacks the libraries of another architecture into a folder, for Debian's cross compilers and qemu-user: tools/sysroot.sh arm64 FOLDER
# Of some of them (libnanomsg5, libevent-dev) only one architecture at a time can be installed, so none is: apt, with lists and a status of
# its own in FOLDER/.apt, fetches them and all they need; nothing of this system changes, and no one has to be root.
set -eu

arch=$1
root=$2
libraries="libc6-dev libcurl4-openssl-dev libnghttp2-dev zlib1g-dev libnanomsg-dev libssl-dev libopenblas-pthread-dev libevent-dev libpcre2-dev
           libutf8proc-dev libxxhash-dev libcmocka-dev"

# What is unpacked is whole, and of this list, when the folder says so.
[ "$(cat "$root/.unpacked" 2>/dev/null)" != "$arch $libraries" ] || exit 0
rm -rf "$root"
mkdir -p "$root/.apt/lists/partial" "$root/.apt/cache/archives/partial" "$root/usr/lib" "$root/usr/bin" "$root/usr/sbin"
root=$(cd "$root" && pwd)
: >"$root/.apt/status"
for d in lib bin sbin; do ln -s usr/$d "$root/$d"; done

own() {
    apt-get -qq -o Dir::State::Lists="$root/.apt/lists" -o Dir::Cache="$root/.apt/cache" -o Dir::State::status="$root/.apt/status" \
        -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o APT::Sandbox::User= -o Debug::NoLocking=1 "$@"
}
echo "sysroot: fetching the libraries of $arch"
# shellcheck disable=SC2086
own update && own -y --no-install-recommends --download-only install $libraries >/dev/null ||
    { echo "sysroot: apt-get could not fetch for $arch: $libraries" >&2; exit 1; }
for deb in "$root"/.apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$root"; done
rm -rf "$root/.apt"
# Links to where the root would be lead out of the folder.
find "$root" -type l | while read -r link; do
    to=$(readlink "$link")
    case $to in /*) ln -sfn "$root$to" "$link" ;; esac
done
# What a package's installation would choose.
for d in "$root"/usr/include/*/openblas-pthread "$root"/usr/lib/*/openblas-pthread; do
    for f in "$d"/*.h "$d"/libopenblas.so.0; do [ ! -e "$f" ] || ln -sf "openblas-pthread/${f##*/}" "${d%/*}/${f##*/}"; done
done
echo "$arch $libraries" >"$root/.unpacked"
