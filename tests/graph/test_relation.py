"""Relation and direction as bits."""

import numpy as np
import pytest
from hypothesis import given

import oracles
from musegnn import Graph, InputError
from musegnn.graph.relation import MAX_RELATIONS, check, code_dtype, encode, has_relation
from musegnn.ops.partition_edges.reference import reverse
from strategies import edge_lists


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "u8"])
def test_each_relation_has_a_bit_of_its_own(dtype):
    codes = encode(np.arange(MAX_RELATIONS).astype(dtype))
    assert codes.dtype == np.uint32
    assert codes.tolist() == [4**r for r in range(MAX_RELATIONS)]
    assert encode(np.zeros(0, dtype=dtype)).tolist() == []


def test_from_the_other_end_the_two_bits_of_each_relation_change_places():
    codes = np.array([0, 1, 2, 3, 1 << 30, 1 << 31, 0xFFFFFFFF, 0b0110], dtype=np.uint32)
    expected = [0, 2, 1, 3, 1 << 31, 1 << 30, 0xFFFFFFFF, 0b1001]
    assert reverse(codes).tolist() == expected
    assert np.array_equal(reverse(reverse(codes)), codes)


@pytest.mark.parametrize(("number", "limit"), [(-1, 16), (16, 16), (2, 2), (10**12, 16)])
def test_a_number_without_a_bit_is_refused(number, limit):
    message = rf"relation has the number {number}; it must lie in \[0, {limit - 1}\]\. Number the relations"
    for function in (encode, check):
        with pytest.raises(InputError, match=message):
            function(np.array([0, number, 1]), limit)


@pytest.mark.parametrize(("count", "bits"), [(1, 8), (4, 8), (5, 16), (8, 16), (9, 32), (16, 32)])
def test_codes_take_two_bits_a_relation(count, bits):
    assert code_dtype(count) == np.dtype(f"u{bits // 8}")
    assert 2 * count <= bits


@given(edges=edge_lists())
def test_every_edge_is_found_again_in_its_relation_and_direction(edges):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes, relation=edges.relation)
    entries = oracles.entries(graph.indptr, graph.indices)
    for r in range(len(graph.relation_names)):
        forward = {entry for entry, has in zip(entries, has_relation(graph.relation, r), strict=True) if has}
        backward = has_relation(graph.relation, r, reverse=True)
        of_relation = zip(edges.source[edges.relation == r], edges.target[edges.relation == r], strict=True)
        expected = {(int(u), int(v)) for u, v in of_relation if u != v}
        assert forward == expected
        assert {entry[::-1] for entry, has in zip(entries, backward, strict=True) if has} == expected


@given(edges=edge_lists())
def test_both_ends_of_an_edge_see_the_same(edges):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes, relation=edges.relation)
    seen = dict(
        zip(oracles.entries(graph.indptr, graph.indices), graph.relation.astype(np.uint32), strict=True)
    )
    for (i, j), code in seen.items():
        assert seen[j, i] == reverse(np.array([code]))[0]
