"""Scores of six queries against 64 keys, and the largest of them, in vector registers.

Running sums that are entries of an array go through memory with every product. Here they are values
of LLVM, ROWS x VECTORS vectors that stay in their registers, and are compared there with what the
queries have already: only a score that matters is written down.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..._compiled import jitted

WIDTH = 64  # keys in a block
ROWS = 6  # queries that are scored together
FLAGS = ("nnan", "nsz", "contract")  # those of `pruned`


def _registers() -> tuple[int, int]:
    """Bytes of a vector, and how many of them a processor like this one holds for each row."""
    try:
        has = llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know them everywhere
        has = {}
    if has.get("avx512f"):
        return 64, 4
    if has.get("avx"):
        return 32, 2
    return 16, 4 if has.get("neon") else 2


BYTES, VECTORS = _registers()


@jitted(inline="always")
def scores(q, row, zt, block, s, d, low, first, rest_q, rest_z):
    """Which of the six queries from `row` on have a score above their `low`: a bit for each.

    Queries are q[r d : r d + d], keys a block of zt, coordinates major. If there is such a score,
    s[k, j] = <q_k, z_j>, or -inf where that is below every `low`. After `first` < d coordinates a
    score is at most the sum so far plus `rest_q` `rest_z`, norms of the other coordinates: most are
    given up there.
    """
    keys = VECTORS * BYTES // zt.itemsize
    hits, parts = np.int32(0), 0
    for part in range(WIDTH // keys):
        found = _scored(q, row, zt, block, part * keys, s, d, low, first, rest_q, rest_z)
        parts |= (found != 0) << part
        hits |= found
    if hits:
        for part in range(WIDTH // keys):
            if not (parts >> part) & 1:
                s[:, part * keys : (part + 1) * keys] = -np.inf
    return hits


def _typed(typingctx, q, row, zt, block, lane, s, d, low, first, rest_q, rest_z):
    """`scores` for six queries and as many keys, from `lane` on, as the registers hold."""
    number, size = zt.dtype, types.intp
    signature = types.int32(q, size, zt, size, size, s, size, low, size, rest_q, rest_z)
    wide = BYTES * 8 // number.bitwidth

    def codegen(context, builder, signature, arguments):
        q, row, zt, block, lane, s, d, low, first, rest_q, rest_z = (
            context.make_array(kind)(context, builder, value).data
            if isinstance(kind, types.Array)
            else value
            for kind, value in zip(signature.args, arguments, strict=True)
        )
        word, mask = ir.IntType(64), ir.IntType(32)
        vector = ir.VectorType(context.get_value_type(number), wide)

        def at(pointer, *steps):
            for step in steps:
                pointer = builder.gep(pointer, [word(step) if isinstance(step, int) else step])
            return pointer

        def vectors(pointer):
            """Places of the vectors of a row of scores or keys."""
            kind = vector.as_pointer()
            return [builder.bitcast(at(pointer, v * wide), kind) for v in range(VECTORS)]

        def load(pointer):
            return [builder.load(p, align=number.bitwidth // 8) for p in vectors(pointer)]

        def spread(pointer):
            return _spread(builder, vector, builder.load(pointer))

        def plus(sums, x, y):
            """sums + x y, a row of vectors; contracted where the processor can."""
            return [
                builder.fadd(s, builder.fmul(x, v, flags=FLAGS), flags=FLAGS)
                for s, v in zip(sums, y, strict=True)
            ]

        def join(phis, *sides):
            """Rows of values that are those of the side that the program comes from."""
            for block, rows in sides:
                for left, right in zip(phis, rows, strict=True):
                    for phi, x in zip(left, right, strict=True):
                        phi.add_incoming(x, block)

        def summed(rows, begin, end):
            """rows + the products of the coordinates from begin to end, one of them at least."""
            before, body = builder.block, builder.append_basic_block("products")
            builder.branch(body)
            builder.position_at_end(body)
            c = builder.phi(word)
            held = [[builder.phi(vector) for _ in sums] for sums in rows]
            x = load(at(keys, builder.mul(c, word(WIDTH))))
            out = [plus(held[r], spread(at(queries[r], c)), x) for r in range(ROWS)]
            more = builder.add(c, word(1))
            join([[c], *held], (before, [[begin], *rows]), (body, [[more], *out]))
            after = builder.append_basic_block("summed")
            builder.cbranch(builder.icmp_signed("<", more, end), body, after)
            builder.position_at_end(after)
            return out

        def some(lanes):
            bits = builder.bitcast(lanes, ir.IntType(wide))
            return builder.icmp_unsigned("!=", bits, bits.type(0))

        def above(rows):
            """For each row the lanes in which it is above its bound, and whether there are any."""
            lanes = []
            for r, (most, *others) in enumerate(rows):
                for x in others:
                    most = builder.select(builder.fcmp_ordered(">", x, most, flags=FLAGS), x, most)
                lanes.append(builder.fcmp_ordered(">", most, bounds[r], flags=FLAGS))
            every = lanes[0]
            for x in lanes[1:]:
                every = builder.or_(every, x)
            return lanes, some(every)

        queries = [at(q, builder.mul(builder.add(row, word(r)), d)) for r in range(ROWS)]
        keys = at(zt, builder.mul(builder.mul(block, d), word(WIDTH)), lane)
        bounds = [spread(at(low, row, r)) for r in range(ROWS)]
        result = cgutils.alloca_once_value(builder, mask(0))
        check, onward, whole, seen, done = map(
            builder.append_basic_block, ("check", "onward", "whole", "seen", "done")
        )
        part = summed([[vector(None)] * VECTORS] * ROWS, word(0), first)
        before = builder.block
        builder.cbranch(builder.icmp_signed("<", first, d), check, whole)

        builder.position_at_end(check)
        y = load(at(rest_z, builder.mul(block, word(WIDTH)), lane))
        most = [plus(part[r], spread(at(rest_q, row, r)), y) for r in range(ROWS)]
        builder.cbranch(above(most)[1], onward, done)

        builder.position_at_end(onward)
        longer = summed(part, first, d)
        after = builder.block
        builder.branch(whole)

        builder.position_at_end(whole)
        sums = [[builder.phi(vector) for _ in sums] for sums in part]
        join(sums, (before, part), (after, longer))
        lanes, any_row = above(sums)
        builder.cbranch(any_row, seen, done)

        builder.position_at_end(seen)
        hits = mask(0)
        for r in range(ROWS):
            hit = builder.shl(builder.zext(some(lanes[r]), mask), mask(r))
            hits = builder.or_(hits, hit)
            for x, place in zip(sums[r], vectors(at(s, r * WIDTH, lane)), strict=True):
                builder.store(x, place, align=number.bitwidth // 8)
        builder.store(hits, result)
        builder.branch(done)

        builder.position_at_end(done)
        return builder.load(result)

    return signature, codegen


_scored: Any = intrinsic(_typed)


def _spread(builder, vector, x):
    """A vector whose entries are all x."""
    one = builder.insert_element(vector(ir.Undefined), x, ir.IntType(64)(0))
    return builder.shuffle_vector(one, one, ir.VectorType(ir.IntType(32), vector.count)(None))


def _two(typingctx, s, k):
    """(largest score, second largest, lane of the largest) of the scores s[k] of a block."""
    number = s.dtype
    signature = types.Tuple((number, number, types.intp))(s, types.intp)
    wide = BYTES * 8 // number.bitwidth
    places = range(0, WIDTH, wide)

    def codegen(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        word, places_of = ir.IntType(64), ir.VectorType(ir.IntType(number.bitwidth), wide)
        vector = ir.VectorType(context.get_value_type(number), wide)

        def larger(x, y):
            return builder.select(builder.fcmp_ordered(">", x, y, flags=FLAGS), x, y)

        def halves(x):
            size = x.type.count // 2
            for start in (0, size):
                lanes = ir.VectorType(ir.IntType(32), size)(list(range(start, start + size)))
                yield builder.shuffle_vector(x, x, lanes)

        def largest(rows):
            while len(rows) > 1:
                rows = [larger(x, y) for x, y in zip(rows[::2], rows[1::2], strict=True)]
            x = rows[0]
            while x.type.count > 1:
                x = larger(*halves(x))
            return builder.extract_element(x, word(0))

        begin = builder.gep(data, [builder.mul(arguments[1], word(WIDTH))])
        rows = []
        for place in places:
            at = builder.bitcast(builder.gep(begin, [word(place)]), vector.as_pointer())
            rows.append(builder.load(at, align=number.bitwidth // 8))
        best = largest(rows)
        equal, bits = _spread(builder, vector, best), word(0)
        for place, x in zip(places, rows, strict=True):
            same = builder.bitcast(builder.fcmp_ordered("==", x, equal), ir.IntType(wide))
            bits = builder.or_(bits, builder.shl(builder.zext(same, word), word(place)))
        lane = builder.cttz(bits, ir.IntType(1)(0))
        short = lane if number.bitwidth == 64 else builder.trunc(lane, places_of.element)
        chosen, rest = _spread(builder, places_of, short), []
        lowest = _spread(builder, vector, vector.element(float("-inf")))
        for place, x in zip(places, rows, strict=True):
            here = builder.icmp_signed("==", places_of(list(range(place, place + wide))), chosen)
            rest.append(builder.select(here, lowest, x))
        return context.make_tuple(builder, signature.return_type, [best, largest(rest), lane])

    return signature, codegen


largest_two: Any = intrinsic(_two)
