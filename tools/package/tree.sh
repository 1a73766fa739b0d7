#!/bin/sh
# Puts everything that is installed into a folder: tools/package/tree.sh BUILD TREE
# What is built is stripped; manual pages, completion and units are made from the programs' own tables. No time and no place of the build is in it.
set -eu
cd "$(dirname "$0")/../.."
build=$1
tree=$2
umask 022
pkg=tools/package

bin=$tree/usr/bin
share=$tree/usr/share
install -d "$bin" "$share/baton" "$share/man/man1" "$share/man/man8" "$share/bash-completion/completions" "$tree/lib/systemd/system" "$tree/etc/baton"

program() { # built name, installed name
    install -m 755 "$build/bin/$1" "$bin/$2"
    strip --strip-unneeded --remove-section=.comment "$bin/$2"
}
program batonctl batonctl
ln -s batonctl "$bin/baton"
program coordinator baton-coordinator
program prefill baton-prefill
program decode baton-decode
program replay baton-replay
[ ! -x "$build/bin/baton-bench" ] || program baton-bench baton-bench
install -m 755 tools/make-pki.sh "$bin/baton-make-pki"

"$build/bin/batonctl" man >"$share/man/man1/batonctl.1"
for role in coordinator prefill decode; do "$build/bin/$role" --man >"$share/man/man8/baton-$role.8"; done
install -m 644 $pkg/man/*.1 "$share/man/man1"
gzip -9n "$share"/man/man*/*
ln -s batonctl.1.gz "$share/man/man1/baton.1.gz"
"$build/bin/batonctl" completion bash >"$share/bash-completion/completions/batonctl"
ln -s batonctl "$share/bash-completion/completions/baton"

for role in coordinator prefill decode; do
    case $role in
    coordinator) what="coordinator" set=COORDINATOR env="BATON_COORDINATOR_STATE_DIR=/var/lib/baton/%i" mdwe="MemoryDenyWriteExecute=yes" ;;
    # Tokenisers have their regular expressions compiled to code, where that is allowed, and are many times slower where it is not.
    *) what="$role instance" set=INSTANCE env="BATON_INSTANCE_WEIGHT_CACHE_PATH=/var/cache/baton" mdwe="MemoryDenyWriteExecute=no" ;;
    esac
    sed -e "s#@ROLE@#$role#; s#@WHAT@#$what#; s#@SET@#$set#; s#@ENV@#$env#; s#@MDWE@#$mdwe#" $pkg/systemd/unit.in >"$tree/lib/systemd/system/baton-$role@.service"
done
install -m 644 $pkg/systemd/baton.target "$tree/lib/systemd/system"

for model in $(git ls-files models 2>/dev/null || find models -type f -not -path '*/.baton/*' | sort); do
    install -D -m 644 "$model" "$share/baton/$model"
done
for conf in $(git ls-files cluster-conf 2>/dev/null || find cluster-conf -type f -not -path '*/pki/*' | sort); do
    install -D -m 644 "$conf" "$share/baton/$conf"
done
for name in coordinator prefill decode rank_table; do
    sed 's#"../../models/#"/usr/share/baton/models/#' cluster-conf/1p1d/$name.json >"$tree/etc/baton/$name.json"
done
find "$tree" -type f -not -path "$bin/*" -exec chmod 644 {} +
find "$tree" -type d -exec chmod 755 {} +
