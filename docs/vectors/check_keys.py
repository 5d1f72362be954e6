"""Builds every message of keys-v1.json anew by the CDDL of docs/KEYS.md. check.py calls it."""

import ipaddress
import json
import pathlib
import struct


def head(major, value):
    """The first octets of an item: its type, and a number as short as can be."""
    for code, (limit, form) in enumerate([(1 << 8, ">B"), (1 << 16, ">H"), (1 << 32, ">I"), (1 << 64, ">Q")]):
        if value < 24:
            return bytes([major << 5 | value])
        if value < limit:
            return bytes([major << 5 | 24 + code]) + struct.pack(form, value)
    raise ValueError(value)


def cbor(item):
    """An item: numbers, texts, octets, lists, and maps in the order of their keys."""
    if isinstance(item, int):
        return head(0, item)
    if isinstance(item, bytes):
        return head(2, len(item)) + item
    if isinstance(item, str):
        return head(3, len(item.encode())) + item.encode()
    if isinstance(item, list):
        return head(4, len(item)) + b"".join(map(cbor, item))
    fields = sorted((key, value) for key, value in item.items() if value is not None)
    return head(5, len(fields)) + b"".join(cbor(key) + cbor(value) for key, value in fields)


def address(text):
    return ipaddress.ip_address(text).packed


def epoch(it):
    return it and {0: bytes.fromhex(it["life"]), 1: it["number"]}


def epoch_keys(it):
    keys = it and {op: bytes.fromhex(key) for op, key in it["keys"]}
    return it and {**epoch(it["epoch"]), 2: it["lifetime_ms"], 3: keys}


def request(it):
    regions = [{0: r["name"], 1: r["ops"], 2: epoch(r["have"])} for r in it["regions"]]
    initiators = [address(a) for a in it["initiators"]]
    return {0: 1, 1: it["number"], 2: initiators, 3: it["pid"], 4: regions}


def answer(it):
    if isinstance(it, str):
        return {0: {"denied": 2, "no address of family": 3}[it]}
    if "lifetime_ms" in it:
        return {0: 1, 5: it["refresh_ms"], 7: it["lifetime_ms"]}
    granted = {0: 0, 1: address(it["responder"]), 2: it["region"], 3: it["region_len"]}
    granted |= {4: epoch_keys(it["present"]), 5: it["refresh_ms"], 6: epoch_keys(it["next"])}
    return granted


def reply(it):
    begin = {0: 1, 1: it["number"]}
    if "answers" in it:
        return {**begin, 2: [answer(a) for a in it["answers"]]}
    if "not_now" in it:
        return {**begin, 3: {0: 1, 1: it["not_now"]["retry_ms"]}}
    if "wrong" in it:
        return {**begin, 3: {0: 2, 2: it["wrong"]["field"]}}
    if "version" in it:
        return {**begin, 3: {0: 3}}
    return {**begin, 3: {0: 4, 3: it["certificate_ended"]["seen"]}}


def check():
    """Returns what there is to say of it."""
    vectors = json.loads((pathlib.Path(__file__).parent / "keys-v1.json").read_text())
    assert vectors["version"] == 1
    for kind, build in [("requests", request), ("replies", reply)]:
        for it in vectors[kind]:
            octets = cbor(build(it))
            assert octets.hex() == it["octets"], it["message"]
            assert struct.pack(">I", len(octets)).hex() == it["length"], it["message"]
    return f"{len(vectors['requests'])} requests and {len(vectors['replies'])} replies are right"
