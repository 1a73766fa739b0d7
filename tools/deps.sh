#!/bin/sh
# Installs the Debian packages that are missing from the lists named on the command line: build test lint bench console docs arm.
# Asks dpkg first, so that it is instant and needs no network when nothing is missing.
set -eu

build="gcc make libc6-dev libcurl4-openssl-dev libnghttp2-dev zlib1g-dev protobuf-compiler libnanomsg-dev libssl-dev libopenblas-pthread-dev libevent-dev
       libpcre2-dev libutf8proc-dev libxxhash-dev curl ca-certificates"
test="libcmocka-dev python3-minimal python3-pytest python3-pytest-xdist python3-pytest-timeout python3-numpy python3-jinja2 python3-jsonschema python3-yaml python3-hpack python3-grpcio python3-protobuf nghttp2-client procps prometheus etcd-server systemd"
lint="lintian clang clang-format cppcheck libclang-rt-14-dev"
bench="python3-numpy iproute2"
console="chromium"
docs="mkdocs"
arm="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user" # the libraries for it: tools/sysroot.sh

wanted=""
for list in "$@"; do
    case $list in
    build) wanted="$wanted $build" ;;
    test) wanted="$wanted $test" ;;
    lint) wanted="$wanted $lint" ;;
    bench) wanted="$wanted $bench" ;;
    console) wanted="$wanted $console" ;;
    docs) wanted="$wanted $docs" ;;
    arm) wanted="$wanted $arm" ;;
    *) echo "deps: unknown list $list (build, test, lint, bench, console, docs, arm)" >&2; exit 2 ;;
    esac
done
# node is often there from elsewhere; Debian's only when it is not.
case " $* " in *" test "*) command -v node >/dev/null && command -v npm >/dev/null || wanted="$wanted nodejs npm" ;; esac

missing=""
for p in $wanted; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "deps: missing packages:$missing; install them as root: apt-get install$missing" >&2; exit 1; }
    as_root=sudo
fi
echo "deps: installing$missing"
# Of prometheus only promtool is wanted, and tests start etcds of their own: their services must not start with the packages.
case " $missing " in
*" prometheus "* | *" etcd-server "*)
    [ ! -d /run/systemd/system ] || $as_root systemctl -q mask prometheus.service etcd.service ;;
esac
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
$as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
    { echo "deps: apt-get could not install:$missing" >&2; exit 1; }
