"""Ask for memory before it is needed: rows that lie far apart are not guessed by the processor."""

from typing import no_type_check

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
@no_type_check
def prefetch(typing_context, array, index):
    """Ask for the cache line of array[index], to be read once."""

    def generate(context, builder, signature, args):
        kind = signature.args[0]
        values = context.make_array(kind)(context, builder, args[0])
        pointer = cgutils.get_item_pointer(context, builder, kind, values, [args[1]], wraparound=False)
        address = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [address.type], ir.FunctionType(ir.VoidType(), [address.type, word, word, word])
        )
        # For reading, little reuse, data rather than instructions.
        builder.call(function, [address, word(0), word(1), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.uintp), generate
