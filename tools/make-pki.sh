#!/bin/sh
# Makes the test PKI of a cluster with the openssl command: one CA a plane, so that a certificate of one plane opens no other.
#
#   tools/make-pki.sh [-i IP,..] [-n DNS,..] [-d DAYS] [-p PLANE,..] DIR     a new PKI in DIR, which must not exist or be empty
#   tools/make-pki.sh issue [-i IP,..] [-n DNS,..] [-u URI] [-f FROM -t TO] DIR PLANE NAME KIND
#                                                                           one more certificate; KIND: server, client, peer
#   tools/make-pki.sh revoke DIR PLANE NAME                                 takes NAME back and makes the plane's CRL anew
#   tools/make-pki.sh crl [-f FROM -t TO] DIR PLANE                         makes the plane's CRL anew (FROM, TO: YYYYMMDDhhmmssZ)
#
# DIR/PLANE/ has ca.pem, crl.pem, and NAME.pem, NAME.key, NAME.pass for NAME server and client (plane cluster: peer, which is both; plane
# register: client alone).
# Keys are EC P-256, encrypted with the password in NAME.pass. Files are 0400, folders 0700. ca/ holds the CA's own key: it is
# needed to issue and revoke, never by a daemon. For tests and demos: a real CA keeps its key elsewhere.
set -eu
umask 077

planes_all="user management status external register business instance metrics cluster"
ips=127.0.0.1
names=localhost
days=30
planes=$planes_all
uri=""
from=""
to=""

die() { echo "make-pki: $*" >&2; exit 1; }
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# Quiet unless it fails; then everything openssl said.
run() {
    said=$(openssl "$@" 2>&1) || { printf '%s\n' "$said" >&2; die "openssl $1 failed"; }
}

command -v openssl >/dev/null || die "openssl is missing: run \`make deps\`"

mode=new
case ${1:-} in issue | revoke | crl) mode=$1; shift ;; esac
while getopts i:n:d:p:u:f:t:h o; do
    case $o in
    i) ips=$OPTARG ;;
    n) names=$OPTARG ;;
    d) days=$OPTARG ;;
    p) planes=$(echo "$OPTARG" | tr , ' ') ;;
    u) uri=$OPTARG ;;
    f) from=$OPTARG ;;
    t) to=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || usage
case $days in '' | *[!0-9]* | 0) die "-d must be a number of days from 1, got \"$days\"" ;; esac
if [ -n "$from$to" ] && { [ -z "$from" ] || [ -z "$to" ]; }; then die "-f and -t belong together"; fi

word() { # what goes into paths and openssl's config
    case $2 in '' | *[!a-zA-Z0-9_.-]* | .*) die "$1 must be letters, digits, '_', '-', '.', got \"$2\"" ;; esac
}
for p in $planes; do word PLANE "$p"; done

sans() {
    s=""
    for i in $(echo "$ips" | tr , ' '); do s="$s,IP:$i"; done
    for n in $(echo "$names" | tr , ' '); do s="$s,DNS:$n"; done
    [ -z "$uri" ] || s="$s,URI:$uri"
    echo "${s#,}"
}

password() { # file
    openssl rand -hex 24 >"$1"
    chmod 0400 "$1"
}

new_key() { # path without suffix
    password "$1.pass"
    run genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -aes-256-cbc -pass "file:$1.pass" -out "$1.key"
    chmod 0400 "$1.key"
}

# The CA's book-keeping is openssl's own; the extensions of each kind stand here once.
write_conf() { # folder of the plane
    cat >"$1/ca/openssl.cnf" <<CNF
[ca]
default_ca = plane
[plane]
database = $1/ca/index.txt
new_certs_dir = $1/ca/issued
rand_serial = yes
certificate = $1/ca.pem
private_key = $1/ca/ca.key
default_md = sha256
default_days = 30
default_crl_days = 30
crlnumber = $1/ca/crlnumber
policy = any
unique_subject = no
crl_extensions = crl
[any]
commonName = supplied
[crl]
authorityKeyIdentifier = keyid
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
extendedKeyUsage = serverAuth
[client]
extendedKeyUsage = clientAuth
[peer]
extendedKeyUsage = serverAuth, clientAuth
[req]
distinguished_name = dn
[dn]
CNF
}

make_crl() { # folder of the plane
    rm -f "$1/crl.pem"
    if [ -n "$from" ]; then
        run ca -config "$1/ca/openssl.cnf" -passin "file:$1/ca/ca.pass" -gencrl -crl_lastupdate "$from" -crl_nextupdate "$to" -out "$1/crl.pem"
    else
        run ca -config "$1/ca/openssl.cnf" -passin "file:$1/ca/ca.pass" -gencrl -crldays "$days" -out "$1/crl.pem"
    fi
    chmod 0400 "$1/crl.pem"
}

issue() { # folder of the plane, name, kind
    if [ -e "$1/$2.pem" ] || [ -e "$1/$2.key" ]; then die "$1/$2.pem is there already; nothing is overwritten"; fi
    new_key "$1/$2"
    cp "$1/ca/openssl.cnf" "$1/ca/issue.cnf"
    cat >>"$1/ca/issue.cnf" <<CNF
[certificate]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
extendedKeyUsage = $(sed -n "/^\[$3\]/{n;s/.*= //p;}" "$1/ca/openssl.cnf")
subjectAltName = $(sans)
CNF
    run req -new -config "$1/ca/openssl.cnf" -key "$1/$2.key" -passin "file:$1/$2.pass" -subj "/CN=$(basename "$1") $2" -out "$1/ca/$2.csr"
    when="-days $days"
    [ -z "$from" ] || when="-startdate $from -enddate $to"
    # shellcheck disable=SC2086 # two words, or four
    run ca -batch -notext -config "$1/ca/issue.cnf" -passin "file:$1/ca/ca.pass" -extensions certificate $when -in "$1/ca/$2.csr" -out "$1/$2.pem"
    chmod 0400 "$1/$2.pem"
    rm -f "$1/ca/$2.csr" "$1/ca/issue.cnf"
}

make_plane() { # folder
    mkdir "$1" "$1/ca" "$1/ca/issued"
    : >"$1/ca/index.txt"
    echo 01 >"$1/ca/crlnumber"
    write_conf "$1"
    new_key "$1/ca/ca"
    run req -x509 -new -config "$1/ca/openssl.cnf" -extensions authority -key "$1/ca/ca.key" -passin "file:$1/ca/ca.pass" \
        -subj "/O=Baton test PKI/CN=$(basename "$1") CA" -days "$((days + 1))" -out "$1/ca.pem"
    chmod 0400 "$1/ca.pem"
    case $1 in
    */cluster) issue "$1" peer peer ;;
    */register) issue "$1" client client ;;
    *)
        issue "$1" server server
        issue "$1" client client
        ;;
    esac
    make_crl "$1"
}

# a plane of an existing PKI: its folder, absolute, because openssl's config has absolute paths
plane_dir() {
    word PLANE "$2"
    [ -f "$1/$2/ca/openssl.cnf" ] || die "$1 has no plane \"$2\""
    dir=$(cd "$1/$2" && pwd)
    write_conf "$dir" # the PKI may have been moved
}

case $mode in
new)
    [ $# -eq 1 ] || usage
    [ ! -e "$1" ] || { [ -d "$1" ] && [ -z "$(ls -A "$1")" ]; } || die "$1 is there already and not empty; nothing is overwritten"
    mkdir -p "$1"
    chmod 0700 "$1"
    dir=$(cd "$1" && pwd)
    for p in $planes; do make_plane "$dir/$p"; done
    echo "make-pki: $dir: planes $planes; valid for $days days, for $(sans)"
    ;;
issue)
    [ $# -eq 4 ] || usage
    plane_dir "$1" "$2"
    word NAME "$3"
    case $4 in server | client | peer) ;; *) die "KIND must be server, client or peer, got \"$4\"" ;; esac
    issue "$dir" "$3" "$4"
    echo "make-pki: $dir/$3.pem: $4 for $(sans)"
    ;;
revoke)
    [ $# -eq 3 ] || usage
    plane_dir "$1" "$2"
    word NAME "$3"
    [ -f "$dir/$3.pem" ] || die "$dir/$3.pem does not exist"
    run ca -config "$dir/ca/openssl.cnf" -passin "file:$dir/ca/ca.pass" -revoke "$dir/$3.pem"
    make_crl "$dir"
    echo "make-pki: $dir/$3.pem is revoked; $dir/crl.pem names it"
    ;;
crl)
    [ $# -eq 2 ] || usage
    plane_dir "$1" "$2"
    make_crl "$dir"
    echo "make-pki: $dir/crl.pem is new"
    ;;
esac
