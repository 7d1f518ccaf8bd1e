"""Which requests come in from outside?

Bytes in, messages out: `WireListener`, `WconfdListener`, `LuxiListener`.
"""
