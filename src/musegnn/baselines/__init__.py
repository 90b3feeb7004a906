"""Peers on the same batches: what people would have picked instead, trained by the same loop."""
