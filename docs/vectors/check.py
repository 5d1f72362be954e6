#!/usr/bin/env python3
"""Builds every frame of 1rma-v2.json anew from docs/WIRE.md, with another AES than the library's,
and takes every packet apart. Then the same of star-v1.json (check_star.py) and keys-v1.json (check_keys.py).

Needs the `cryptography` package: pip install cryptography
"""

import ipaddress
import json
import pathlib
import struct
import sys

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.cmac import CMAC

# Frame type: its number, the direction in its IV, the type of the frame that it answers.
MUTATIONS = ["write request", "rekey request", "recorded request"]
REQUESTS = ["read request", *MUTATIONS, "settle request"]
TYPES = {
    "read request": (1, 0, [None]),
    "read response": (2, 1, ["read request"]),
    "failure": (3, 1, REQUESTS),
    "write request": (4, 0, [None]),
    "rekey request": (5, 0, [None]),
    "solicitation": (6, 1, MUTATIONS),
    "solicited data": (7, 0, ["solicitation"]),
    "acknowledgement": (8, 1, ["solicitation"]),
    "recorded request": (9, 0, [None]),
    "acknowledgement with result": (10, 1, ["solicitation"]),
    "settle request": (11, 0, [None]),
    "settlement": (12, 1, ["settle request"]),
}
# The types of which a recorded op may be, of those that keys are derived for.
OP_TYPES = {1, 2, 3, 4, 5, 6, 7, 8}
RECORDED = OP_TYPES - {1, 3}
ATOMICS = {7, 8}


def derived_key(key):
    """K_d: one AES block between IPv4 addresses, AES-CMAC between IPv6 addresses."""
    region_key = bytes.fromhex(key["region_key"])
    addresses = [ipaddress.ip_address(key[who]) for who in ("initiator", "responder")]
    domain = {4: 4, 6: 6}[addresses[0].version]
    fields = struct.pack(">BBHI", domain, key["op_type"], 0, key["pid"])
    fields += b"".join(address.packed for address in addresses)
    assert fields.hex() == key["input"]
    if domain == 4:
        block = Cipher(algorithms.AES(region_key), modes.ECB()).encryptor()
        return block.update(fields) + block.finalize()
    mac = CMAC(algorithms.AES(region_key))
    mac.update(fields)
    return mac.finalize()


def iv(frame):
    header = frame["header"]
    direction = TYPES[frame["frame_type"]][1]
    assert direction == frame["direction"], frame["name"]
    return struct.pack(">BBHQ", direction, 0, header["engine"], int(header["counter"], 16))


def header(frame):
    h, f = frame["header"], frame["fields"]
    kind = TYPES[frame["frame_type"]][0]
    octets = struct.pack(">BBBB", h["version"], kind, h["class"], h["status"])
    octets += struct.pack(">IIHHI", h["pid"], h["region"], h["slot"], h["engine"], h["generation"])
    octets += struct.pack(">Q", int(h["counter"], 16))
    if kind == 1:
        offset = int(f["region_offset"], 16)
        return octets + struct.pack(">QHH", offset, f["op_size"], f["payload_len_max"])
    if kind == 2:
        return octets + struct.pack(">HH", f["op_offset"], f["payload_len"])
    if kind in (4, 5):
        offset = int(f["region_offset"], 16)
        octets += struct.pack(">QHH", offset, f["op_size"], f["reserved"])
        return octets + struct.pack(">I", f["timeout_micros"])
    if kind == 6:
        return octets + struct.pack(">HH", f["pending_write"], f["payload_len_max"])
    if kind == 7:
        octets += struct.pack(">HH", f["pending_write"], f["payload_len"])
        return octets + struct.pack(">HH", f["op_offset"], f["reserved"])
    if kind == 9:
        offset, counter = (int(f[name], 16) for name in ("region_offset", "done_counter"))
        octets += struct.pack(">QHBB", offset, f["op_size"], f["op_type"], f["flags"])
        octets += struct.pack(">IQ", f["timeout_micros"], counter)
        return octets + struct.pack(">HH", f["done_number"], f["reserved"])
    if kind == 11:
        octets += struct.pack(">QH", int(f["of_counter"], 16), f["of_engine"])
        octets += struct.pack(">BB", f["op_type"], f["zero"])
        return octets + struct.pack(">HH", f["of_number"], f["reserved"])
    if kind == 12:
        return octets + struct.pack(">HH", f["verdict"], f["reserved"])
    return octets + struct.pack(">I", f["reserved"])


def check_meaning(frame, answered):
    """What section 2 says of the values of the new frames, and of what they answer."""
    name, f = frame["name"], frame["fields"]
    word = int(frame["plaintext"] or "0", 16)
    if frame["frame_type"] == "recorded request":
        kind, offset, size = f["op_type"], int(f["region_offset"], 16), f["op_size"]
        assert kind in RECORDED and f["flags"] == (kind == 2 or kind == 5 and f["flags"]), name
        assert len(frame["plaintext"]) == 16 and (not word or kind in (4, 5)), name
        assert size == {6: 8, 7: 16, 8: 8}.get(kind, size) and 1 <= size <= 4096, name
        assert not offset or kind not in (4, 6), name
        assert not (f["flags"] or kind in ATOMICS) or offset % 8 == size % 8 == 0, name
        assert int(f["done_counter"], 16) or not f["done_number"], name
    if frame["frame_type"] == "acknowledgement with result":
        request = by_name[answered["answers"]]
        assert request["fields"]["op_type"] in ATOMICS and not frame["header"]["status"], name
    if frame["frame_type"] == "settle request":
        assert f["op_type"] in RECORDED and f["zero"] == 0, name
    if frame["frame_type"] == "settlement":
        is_known = f["verdict"] == 1 and answered["fields"]["op_type"] in ATOMICS
        assert f["verdict"] in (1, 2, 3) and (is_known or not word), name
    if frame["frame_type"] == "acknowledgement":
        request = by_name[answered["answers"]]
        is_atomic = request["fields"].get("op_type") in ATOMICS
        assert frame["header"]["status"] or not is_atomic, name


def aad(frame, answered):
    """The header; in answers the answered frame's IV; in failures its tag as well."""
    parts = {"header": header(frame)}
    if answered:
        parts["answers.iv"] = iv(answered)
    if frame["frame_type"] == "failure":
        parts["answers.tag"] = bytes.fromhex(answered["frame"])[-16:]
    assert list(parts) == vectors["aad"][frame["frame_type"]], frame["name"]
    return b"".join(parts.values())


def walk(packet):
    """The lengths of the frames that a receiver finds in a packet, and the tail (section 1.1)."""
    fixed = {1: 56, 3: 48, 4: 60, 5: 60, 6: 48, 8: 48, 9: 80, 10: 56, 11: 60, 12: 56}
    with_payload = {2: 48, 7: 52}
    lengths, at = [], 0
    while at < len(packet) or not packet:
        rest = packet[at:]
        if len(lengths) == 32:
            return lengths, {"reason": "too many frames", "octets": len(rest)}
        if len(rest) < 32:
            return lengths, {"reason": "length", "octets": len(rest)}
        version, kind = rest[:2]
        if version != 2:
            return lengths, {"reason": "version", "octets": len(rest)}
        if kind in with_payload:
            length = with_payload[kind] + struct.unpack(">H", rest[30:32])[0]
        elif kind in fixed:
            length = fixed[kind]
        else:
            return lengths, {"reason": "frame type", "octets": len(rest)}
        if length > len(rest):
            return lengths, {"reason": "length", "octets": len(rest)}
        lengths.append(length)
        at += length
    return lengths, None


vectors = json.loads((pathlib.Path(__file__).parent / "1rma-v2.json").read_text())
keys = {"reserved": bytes.fromhex(vectors["reserved_key"])}
assert keys["reserved"] == b"1RMA reserved k."
for key in vectors["keys"]:
    keys[key["name"]] = derived_key(key)
    assert keys[key["name"]].hex() == key["derived_key"], key["name"]
assert {key["op_type"] for key in vectors["keys"]} == OP_TYPES, "each type of op has a key"
by_name = {frame["name"]: frame for frame in vectors["frames"]}
assert len(by_name) == len(vectors["frames"]), "each name is one frame's"
assert {frame["frame_type"] for frame in by_name.values()} == set(TYPES), "every type is there"
ivs = set()
for name, frame in by_name.items():
    answered = by_name.get(frame["answers"])
    assert (answered and answered["frame_type"]) in TYPES[frame["frame_type"]][2], name
    key = keys.get(frame["key_name"]) or bytes.fromhex(frame["key"])
    sealed = AESGCM(key).encrypt(iv(frame), bytes.fromhex(frame["plaintext"]), aad(frame, answered))
    assert key.hex() == frame["key"], name
    assert iv(frame).hex() == frame["iv"] and aad(frame, answered).hex() == frame["aad"], name
    assert sealed.hex() == frame["ciphertext"] + frame["tag"], name
    assert (header(frame) + sealed).hex() == frame["frame"], name
    check_meaning(frame, answered)
    if frame["key_name"] not in ("reserved", "wrong"):
        assert (key, iv(frame)) not in ivs, name
        ivs.add((key, iv(frame)))
verdicts = {it["fields"]["verdict"] for it in by_name.values() if it["frame_type"] == "settlement"}
assert verdicts == {1, 2, 3}, "every verdict is there"
recorded = [it["fields"] for it in by_name.values() if it["frame_type"] == "recorded request"]
kinds = {(it["op_type"], it["flags"]) for it in recorded}
assert kinds == {(2, 1), (4, 0), (5, 0), (5, 1), (6, 0), (7, 0), (8, 0)}, "every recorded op"
reasons = set()
for packet in vectors["packets"]:
    parts = [
        by_name[it["frame"]]["frame"] if "frame" in it else it["octets"] for it in packet["parts"]
    ]
    assert "".join(parts) == packet["packet"], packet["name"]
    lengths, tail = walk(bytes.fromhex(packet["packet"]))
    assert lengths == [len(it) // 2 for it in parts[: packet["frames"]]], packet["name"]
    assert tail == packet["tail"], packet["name"]
    reasons.add(tail and tail["reason"])
assert reasons == {None, "length", "version", "frame type", "too many frames"}, reasons
print(
    f"{len(keys) - 1} derived keys, {len(by_name)} frames and"
    f" {len(vectors['packets'])} packets are right"
)

sys.dont_write_bytecode = True
import check_keys
import check_star

print(check_star.check())
print(check_keys.check())
