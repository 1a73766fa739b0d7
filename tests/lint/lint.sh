#!/bin/sh
# floors, format, size of files, warnings as errors with gcc and clang, registers of the hot loops, cppcheck. Stops at the first kind that finds something.
set -eu
cd "$(dirname "$0")/../.."
jobs=$(nproc)

echo "lint: floors"
tests/lint/floors.sh

echo "lint: files of at most 800 lines"
git ls-files '*.c' '*.h' '*.py' '*.sh' | xargs wc -l | awk '$2 != "total" && $1 > 800 { print "lint: " $2 " has " $1 " lines: find its second subject"; bad = 1 } END { exit bad }'

echo "lint: format"
git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror

echo "lint: warnings as errors"
make -s -j"$jobs" BUILD=build-lint-gcc CC=gcc CFLAGS="-O2 -g -Werror" daemons unit-bins emulated-bins bench-bins
make -s -j"$jobs" BUILD=build-lint-clang CC=clang CFLAGS="-O1 -g -Werror" daemons unit-bins

# What gcc makes of them is what runs; clang's is its own affair.
echo "lint: loops that spill"
/usr/bin/python3 tests/lint/spills.py build-lint-gcc
if command -v aarch64-linux-gnu-gcc >/dev/null; then
    # shellcheck disable=SC2046
    make -s -j"$jobs" BUILD=build-lint-arm CC=aarch64-linux-gnu-gcc CFLAGS="-O2 -g -Werror" \
        $(printf 'build-lint-arm/common/engine/kernels_%s.o ' neon neondot neoni8mm neonbf16)
    /usr/bin/python3 tests/lint/spills.py build-lint-arm arm
else
    echo "lint: loops of aarch64 are left out: no aarch64-linux-gnu-gcc (tools/deps.sh arm)"
fi

# invalidPointerCast: packed weights are bytes that hold floats, aligned by their makers. invalidFunctionArg: sums of exponentials are above 0.
# autoVariables: the parser's scope lives on the stack of the call that set it, and is taken back before it returns.
echo "lint: cppcheck"
git ls-files '*.c' | grep -v '^tests/' | xargs cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr \
    --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches --suppress=invalidPointerCast \
    --suppress=invalidFunctionArg --suppress=autoVariables:common/text/jinja_parse.c --error-exitcode=1 -I. -j"$jobs" -D__x86_64__
# what is built above, stripped
echo "lint: the package"
lintian --allow-root --fail-on error,warning --suppress-tags uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball \
    "$(DEB_COMPRESSION=none tools/package/deb.sh build-lint-gcc)" # compressed for releases alone, since that takes a minute
echo "lint: ok"
