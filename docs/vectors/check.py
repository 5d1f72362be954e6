#!/usr/bin/env python3
"""Builds every frame of 1rma-v1.json anew from docs/WIRE.md, with another AES than the library's.

Needs the `cryptography` package: pip install cryptography
"""

import ipaddress
import json
import pathlib
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.cmac import CMAC

TYPES = {"read request": 1, "read response": 2, "failure": 3}


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
    direction = 0 if frame["frame_type"] == "read request" else 1
    return struct.pack(">BBHQ", direction, 0, header["engine"], int(header["counter"], 16))


def header(frame):
    h, f = frame["header"], frame["fields"]
    kind = TYPES[frame["frame_type"]]
    octets = struct.pack(">BBBB", h["version"], kind, h["class"], h["status"])
    octets += struct.pack(">IIHHI", h["pid"], h["region"], h["slot"], h["engine"], h["generation"])
    octets += struct.pack(">Q", int(h["counter"], 16))
    if kind == 1:
        offset = int(f["region_offset"], 16)
        return octets + struct.pack(">QHH", offset, f["op_size"], f["payload_len_max"])
    if kind == 2:
        return octets + struct.pack(">HH", f["op_offset"], f["payload_len"])
    return octets + struct.pack(">I", f["reserved"])


vectors = json.loads((pathlib.Path(__file__).parent / "1rma-v1.json").read_text())
keys = {"reserved": bytes.fromhex(vectors["reserved_key"])}
for key in vectors["keys"]:
    keys[key["name"]] = derived_key(key)
    assert keys[key["name"]].hex() == key["derived_key"], key["name"]
by_name = {frame["name"]: frame for frame in vectors["frames"]}
for frame in vectors["frames"]:
    name, answers = frame["name"], frame["answers"]
    key = keys.get(frame["key_name"]) or bytes.fromhex(frame["key"])
    aad = header(frame) + (iv(by_name[answers]) if answers else b"")
    sealed = AESGCM(key).encrypt(iv(frame), bytes.fromhex(frame["plaintext"]), aad)
    assert key.hex() == frame["key"], name
    assert iv(frame).hex() == frame["iv"] and aad.hex() == frame["aad"], name
    assert sealed.hex() == frame["ciphertext"] + frame["tag"], name
    assert (header(frame) + sealed).hex() == frame["frame"], name
print(f"{len(keys) - 1} derived keys and {len(by_name)} frames are right")
