"""The inner loops of the matrix products keep what they work on in registers: fails on one that reads a vector back from the stack.

    spills.py BUILD        disassembles BUILD/common/engine/kernels_*.o with objdump

A loop is what lies between a jump backwards and its target, and an inner one holds no other. It counts when it has at least PRODUCTS
multiplications of vectors. Stack is what %rsp points to, and %rbp where it is a frame's."""
import re
import subprocess
import sys

PRODUCTS = 4
MULTIPLIES = re.compile(r"\bv(fn?m(add|sub)\d*ps|dpbf16ps|pdpbusd|pdpwssd|pmaddubsw|pmaddwd)\b")
# Of each set, the functions whose loops are looked at, and how many reloads gcc may leave in them. AVX2 has sixteen registers for accumulators
# of two halves: what is left there was measured beside tiles that do not spill and are no faster (docs/performance.md, "What was tried").
SETS = {
    "avx2": {"tile_run": 2, "q_tile_run": 26},
    "avx512": {"tile_run": 1, "tile_int8": 0, "tile_int4": 0},
    "avx512vnni": {"tile_int8": 0, "tile_int4": 0, "tile_narrow": 0},  # its floats are multiplied by avx512, and the few rows of amx here
    "avx512bf16": {"tile_int8": 0, "tile_int4": 0, "tile_narrow": 0, "tile_pairs_few": 0, "gemm_pairs": 0},
}


def functions(path):
    """Name and lines (address, text) of each function of an object."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    for part in re.split(r"\n(?=[0-9a-f]+ <)", text):
        head = re.match(r"[0-9a-f]+ <([^>]+)>:", part)
        if head:
            lines = re.findall(r"^\s*([0-9a-f]+):\s+(.*)$", part, re.M)
            yield head.group(1), [(int(at, 16), what) for at, what in lines]


def inner_loops(lines):
    spans = []
    for at, what in lines:
        jump = re.match(r"j\w+\s+([0-9a-f]+) ", what)
        if jump and int(jump.group(1), 16) <= at:
            spans.append((int(jump.group(1), 16), at))
    for first, last in spans:
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in spans):
            yield first, [what for at, what in lines if first <= at <= last]


def reloads(loop, stack):
    """Instructions that read a vector from the stack: AT&T's order, so a destination comes last."""
    return [what for what in loop if re.search(r"%[xyz]mm", what) and re.search(stack, what.rsplit(",", 1)[0] + ",")]


def look(name, path, wanted):
    """Loops seen, and lines that say what is wrong."""
    loops, wrong, found = 0, [], dict.fromkeys(wanted, 0)
    spilled = {function: [] for function in wanted}
    for function, lines in functions(path):
        base = function.split(".")[0]
        if base not in wanted:
            continue
        frame = any(re.match(r"mov\s+%rsp,%rbp", what) for _, what in lines)
        stack = r"\(%(rsp|rbp)[,)]" if frame else r"\(%rsp[,)]"
        for at, loop in inner_loops(lines):
            if sum(1 for what in loop if MULTIPLIES.search(what)) >= PRODUCTS:
                found[base] += 1
                spilled[base] += [f"kernels_{name}.o, {function}, the loop at {at:x}: {' '.join(what.split())}" for what in reloads(loop, stack)]
    for function, most in wanted.items():
        loops += found[function]
        if found[function] == 0:
            wrong.append(f"kernels_{name}.o has no loop of products in {function}: is it named otherwise?")
        if len(spilled[function]) > most:
            wrong += spilled[function] + [f"kernels_{name}.o, {function}: {len(spilled[function])} reloads, at most {most}"]
    return loops, wrong


def main():
    loops, wrong = 0, []
    for name, wanted in SETS.items():
        n, lines = look(name, f"{sys.argv[1]}/common/engine/kernels_{name}.o", wanted)
        loops += n
        wrong += lines
    print("".join(f"spills: {line}\n" for line in wrong) + f"spills: {loops} loops of products looked at")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
