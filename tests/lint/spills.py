"""The inner loops of the matrix products keep what they work on in registers: fails on one that reads a vector back from the stack.

    spills.py BUILD        disassembles BUILD/common/engine/kernels_*.o of x86-64 with objdump
    spills.py BUILD arm    those of aarch64, with aarch64-linux-gnu-objdump

A loop is what lies between a jump backwards and its target, and an inner one holds no other. It counts when it has at least PRODUCTS
multiplications of vectors. Stack is what the stack pointer points to, and the frame's register where it is a frame's."""
import re
import subprocess
import sys

PRODUCTS = 4


class X86:
    objdump = "objdump"
    multiplies = re.compile(r"\bv(fn?m(add|sub)\d*ps|dpbf16ps|pdpbusd|pdpwssd|pmaddubsw|pmaddwd)\b")
    jump = re.compile(r"j\w+\s+([0-9a-f]+) ")
    # Of each set, the functions whose loops are looked at, and how many reloads gcc may leave in them. AVX2 has sixteen registers for accumulators
    # of two halves: what is left there was measured beside tiles that do not spill and are no faster (docs/performance.md, "What was tried").
    sets = {
        "avx2": {"tile_run": 2, "q_tile_run": 26},
        "avx512": {"tile_run": 1, "tile_int8": 0, "tile_int4": 0},
        "avx512vnni": {"tile_int8": 0, "tile_int4": 0, "tile_narrow": 0},  # its floats are multiplied by avx512, and the few rows of amx here
        "avx512bf16": {"tile_int8": 0, "tile_int4": 0, "tile_narrow": 0, "tile_pairs_few": 0, "gemm_pairs": 0},
    }

    @staticmethod
    def stack(lines):
        return r"\(%(rsp|rbp)[,)]" if any(re.match(r"mov\s+%rsp,%rbp", what) for _, what in lines) else r"\(%rsp[,)]"

    @staticmethod
    def reload(what, stack):
        """Reads a vector from the stack: AT&T's order, so a destination comes last."""
        return re.search(r"%[xyz]mm", what) and re.search(stack, what.rsplit(",", 1)[0] + ",")


class Arm:
    objdump = "aarch64-linux-gnu-objdump"
    multiplies = re.compile(r"\b(fmla|smull2?|umull2?|[su]dot|usdot|[su]mmla|usmmla|bfmmla|bfdot)\b")
    jump = re.compile(r"(?:b|b\.\w+|cbn?z|tbn?z)\s+(?:\S+,\s*)*([0-9a-f]+) <")
    # Six rows by sixteen columns are 24 accumulators of 32 registers, which leaves few for what widens their operands: that many reloads are left in
    # all loops of a function, and products written as assembly have as many (docs/performance.md, "aarch64").
    sets = {
        "neon": {"tile_run": 38, "q_tile_run": 119},
        "neondot": {"tile_run": 38, "q_tile_run": 25},
        "neoni8mm": {"tile_run": 38, "q_tile_run": 26},
        "neonbf16": {"tile_run": 29, "q_tile_run": 23, "gemm_pairs": 8},
    }

    @staticmethod
    def stack(lines):
        return r"\[(sp|x29)[],]" if any(re.match(r"mov\s+x29, sp", what) for _, what in lines) else r"\[sp[],]"

    @staticmethod
    def reload(what, stack):
        return re.match(r"ld[rp]\s+[qdv]\d", what) and re.search(stack, what)


def functions(cpu, path):
    """Name and lines (address, text) of each function of an object."""
    text = subprocess.run([cpu.objdump, "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    for part in re.split(r"\n(?=[0-9a-f]+ <)", text):
        head = re.match(r"[0-9a-f]+ <([^>]+)>:", part)
        if head:
            lines = re.findall(r"^\s*([0-9a-f]+):\s+(.*)$", part, re.M)
            yield head.group(1), [(int(at, 16), what) for at, what in lines]


def inner_loops(cpu, lines):
    spans = []
    for at, what in lines:
        jump = cpu.jump.match(what)
        if jump and int(jump.group(1), 16) <= at:
            spans.append((int(jump.group(1), 16), at))
    for first, last in spans:
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in spans):
            yield first, [what for at, what in lines if first <= at <= last]


def look(cpu, name, path, wanted):
    """Loops seen, and lines that say what is wrong."""
    loops, wrong, found = 0, [], dict.fromkeys(wanted, 0)
    spilled = {function: [] for function in wanted}
    for function, lines in functions(cpu, path):
        base = function.split(".")[0]
        if base not in wanted:
            continue
        stack = cpu.stack(lines)
        for at, loop in inner_loops(cpu, lines):
            if sum(1 for what in loop if cpu.multiplies.search(what)) >= PRODUCTS:
                found[base] += 1
                spilled[base] += [f"kernels_{name}.o, {function}, the loop at {at:x}: {' '.join(what.split())}" for what in loop if cpu.reload(what, stack)]
    for function, most in wanted.items():
        loops += found[function]
        if found[function] == 0:
            wrong.append(f"kernels_{name}.o has no loop of products in {function}: is it named otherwise?")
        if len(spilled[function]) > most:
            wrong += spilled[function] + [f"kernels_{name}.o, {function}: {len(spilled[function])} reloads, at most {most}"]
    return loops, wrong


def main():
    loops, wrong, cpu = 0, [], Arm if sys.argv[2:] == ["arm"] else X86
    for name, wanted in cpu.sets.items():
        n, lines = look(cpu, name, f"{sys.argv[1]}/common/engine/kernels_{name}.o", wanted)
        loops += n
        wrong += lines
    print("".join(f"spills: {line}\n" for line in wrong) + f"spills: {loops} loops of products looked at")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
