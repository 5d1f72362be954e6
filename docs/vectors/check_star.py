"""Builds every frame of star-v1.json anew from docs/STAR-WIRE.md. check.py calls it."""

import ipaddress
import json
import pathlib
import struct

from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.cmac import CMAC

# Kind of frame: its type, whether Z sends it (None: either), the keys that it may be under, the
# kinds of frames that it answers by its AAD.
KINDS = {
    "wqep": (0x21, True, "C", [None]),
    "cqep": (0x22, False, "CH", [None]),
    "ea of z": (0x23, True, "CH", [None]),
    "ea of f": (0x23, False, "CH", [None]),
    "rd": (0x24, False, "WMH", [None]),
    "rda": (0x25, True, "WM", ["rd"]),
    "gd": (0x26, False, "WMH", [None]),
    "gda": (0x27, True, "WMH", ["gd"]),
    "state": (0x28, None, "C", [None]),
}
SEND, RECV, WRITE, READ, SWITCH = range(5)
NO_SLOT = 0xFFFFFFFF
RC_SLOT = 0xFFFFFFFE


def domain(bound_to):
    """Which kind of key names what it is bound to like this."""
    if "half" in bound_to:
        return "H"
    return "W" if "slot" in bound_to else "M" if "mr_name" in bound_to else "C"


def derived_key(key):
    """AES-CMAC under K_p, or of a half under K_c, of the names in turn (section 3)."""
    c, b = key["connection"], key["bound_to"]
    addresses = [ipaddress.ip_address(key[who]) for who in "fz"]
    message = domain(b).encode() + struct.pack(">B", addresses[0].version)
    message += struct.pack(">IIIIH", c["pd"], c["qpn_z"], c["qpn_f"], c["nonce"], c["era"])
    message += b"".join(address.packed for address in addresses)
    if domain(b) == "W":
        offset = int(b["mr_offset"], 16)
        message += struct.pack(">BIII", b["op"], b["slot"], b["generation"], b["mr"])
        message += struct.pack(">QI", offset, b["len"])
    elif domain(b) == "M":
        message += struct.pack(">BQ", b["op"], b["mr_name"])
    assert message.hex() == key["message"], key["name"]
    mac = CMAC(algorithms.AES(bytes.fromhex(key["pd_key"])))
    mac.update(message)
    return mac.finalize()


def header(frame):
    """The header, octet by octet (section 2)."""
    h, f, kind = frame["header"], frame["fields"], frame["kind"]
    flags = h["op"] << 6 | h["wants_answer"] << 5 | h["completes"] << 4
    flags |= h["odd_phase"] << 3 | frame["from_z"] << 2
    octets = struct.pack(">BBBB", 1, KINDS[kind][0], flags, 0)
    octets += struct.pack(">IIIIH", h["pd"], h["qpn_z"], h["qpn_f"], h["nonce"], h["era"])
    octets += struct.pack(">HQ", h["engine"], int(h["counter"], 16))
    octets += struct.pack(">I", int(frame["time"], 16) & 0xFFFFFFFF)
    if kind == "wqep":
        return octets + struct.pack(">BBH", f["count"], 0, f["inline_len"])
    if kind == "cqep":
        return octets + struct.pack(">BBH", f["count"], f["state_number"], f["state_parts"])
    if kind == "ea of z":
        return octets + struct.pack(">BBH", f["count"], 0, f["delay_micros"])
    if kind == "ea of f":
        return octets + struct.pack(">BBH", f["state_number"], 0, f["state_parts"])
    if kind in ("rd", "gd"):
        octets += struct.pack(">IIIQ", f["slot"], f["generation"], f["mr"], int(f["mr_offset"], 16))
        octets += struct.pack(">III", f["wqe_len"], f["chunk_offset"], f["sequence"])
        return octets + struct.pack(">HBB", f["chunk_len"], f["copy"], 0)
    if kind in ("rda", "gda"):
        octets += struct.pack(">IIH", f["chunk_offset"], f["sequence"], f["delay_micros"])
        octets += struct.pack(">BB", f["result"], f["copy"])
        return octets + (struct.pack(">HH", f["chunk_len"], 0) if kind == "gda" else b"")
    if kind == "state":
        octets += struct.pack(">HHBB", f["part"], f["of"], f["kind"], f["number"])
        return octets + struct.pack(">H", f["payload_len"])
    return octets


def immediate(entry):
    return (entry["immediate"] is not None, entry["immediate"] or 0)


def wqe(e):
    has, value = immediate(e)
    octets = struct.pack(">III", e["slot"], e["generation"], e["sequence"])
    octets += struct.pack(">BBH", e["op"], has | e["is_inline"] << 1, e["open_before"])
    octets += struct.pack(">II", e["mr"], e["len"])
    octets += struct.pack(">QQ", int(e["mr_offset"], 16), int(e["remote_offset"], 16))
    return octets + struct.pack(">II", e["remote_mr"], value) + bytes.fromhex(e["key"])


def cqe(e):
    has, value = immediate(e)
    octets = struct.pack(">IIII", e["slot"], e["generation"], e["sequence"], e["byte_len"])
    flags = has | e["is_of_write"] << 1
    return octets + struct.pack(">BBBBI", e["status"], e["op"], flags, 0, value)


def taken(entries):
    return struct.pack(">II", entries["send"], entries["recv"])


def switch(kind, it):
    """The payload of a STATE about a change of roles."""
    if "pd" in it:
        assert kind == 5
        numbers = [it["pd"], it["nonce"], *it["giver"], *it["taker"]]
        head = (it["number"], it["packet_len_max"], it["valid_micros"], int(it["clock"], 16))
        return struct.pack(">HHIQ6I", *head, *numbers) + bytes.fromhex(it["key"])
    if "is_automatic" in it:
        assert kind == 4
        return struct.pack(">HB21x", it["number"], it["is_automatic"])
    assert kind in (4, 6, 7)
    return struct.pack(">H14x", it["number"])


def payload(frame):
    """What the payload is, of those whose payload is entries; else as it is said to be."""
    kind, entries = frame["kind"], frame["entries"]
    plaintext = bytes.fromhex(frame["plaintext"])
    if kind == "wqep":
        octets = b"".join(map(wqe, entries))
        inline = sum(it["len"] for it in entries if it["is_inline"])
        assert inline == frame["fields"]["inline_len"] == len(plaintext) - len(octets)
        return octets + plaintext[len(octets) :]
    if kind == "cqep":
        return taken(entries) + b"".join(map(cqe, entries["cqes"]))
    if kind == "ea of z":
        parts = [(int(it["counter"], 16), it["taken"], it["result"]) for it in entries]
        return b"".join(struct.pack(">QIB3x", *it) for it in parts)
    if kind == "ea of f":
        return taken(entries)
    if kind == "state" and entries is not None:
        return switch(frame["fields"]["kind"], entries)
    length = frame["fields"].get("payload_len", frame["fields"].get("chunk_len", 0))
    assert len(plaintext) == (0 if kind == "gd" else length), frame["name"]
    return plaintext


def iv(frame):
    """Direction, 0, engine, counter."""
    h = frame["header"]
    return struct.pack(">BBHQ", frame["from_z"], 0, h["engine"], int(h["counter"], 16))


def aad(frame, answered):
    """The header; then the high half of its time and, in RDA and GDA, the answered frame's IV."""
    octets = header(frame) + struct.pack(">I", int(frame["time"], 16) >> 32)
    return octets + (iv(answered) if answered else b"")


def check_meaning(frame, answered):
    """What section 2 says of the values."""
    name, kind, h, f = frame["name"], frame["kind"], frame["header"], frame["fields"]
    asks = kind in ("wqep", "gd", "state") or (kind == "cqep" and h["wants_answer"])
    assert kind == "rd" or (h["wants_answer"], h["completes"]) == (asks, False), name
    assert kind in ("rd", "rda", "gd", "gda") or not h["op"], name
    if kind in ("rd", "gd"):
        of_z, of_f = ((RECV, READ), (WRITE,)) if kind == "rd" else ((SEND, WRITE), (READ,))
        of_rc = (RECV, WRITE) if kind == "rd" else (READ,)
        ops = {NO_SLOT: of_f, RC_SLOT: of_rc}.get(f["slot"], of_z)
        assert h["op"] in ops, name
        assert f["slot"] != RC_SLOT or not (h["op"] == RECV and f["mr"]), name
        assert f["chunk_offset"] % 64 == 0 and f["chunk_len"] <= 4096, name
        assert f["chunk_offset"] + f["chunk_len"] <= f["wqe_len"] <= 1 << 30, name
        ends = h["op"] == RECV or f["chunk_offset"] + f["chunk_len"] == f["wqe_len"]
        assert f["chunk_len"] % 64 == 0 or ends, name
        assert f["chunk_len"] or (h["completes"] and not f["chunk_offset"]), name
        assert not h["completes"] or h["op"] == RECV, name
    if kind in ("rda", "gda"):
        same = ("chunk_offset", "sequence", "copy")
        assert all(f[it] == answered["fields"][it] for it in same), name
        assert h["op"] == answered["header"]["op"], name
    if kind == "gda":
        done = f["result"] == 0
        assert f["chunk_len"] == (answered["fields"]["chunk_len"] if done else 0), name
    if kind == "state":
        assert f["part"] < f["of"] and 16 <= f["payload_len"] <= 4096, name


def check():
    """Returns what there is to say of it."""
    vectors = json.loads((pathlib.Path(__file__).parent / "star-v1.json").read_text())
    assert vectors["version"] == 1
    keys, domains = {}, {}
    for key in vectors["keys"]:
        keys[key["name"]], domains[key["name"]] = derived_key(key), domain(key["bound_to"])
        assert keys[key["name"]].hex() == key["key"], key["name"]
    assert set(domains.values()) == {"C", "W", "M", "H"}, "every kind of key is there"
    by_name = {frame["name"]: frame for frame in vectors["frames"]}
    assert len(by_name) == len(vectors["frames"]), "each name is one frame's"
    assert {it["kind"] for it in by_name.values()} == set(KINDS), "every kind is there"
    ivs = set()
    for name, frame in by_name.items():
        _, from_z, under, answers = KINDS[frame["kind"]]
        answered = by_name.get(frame["answers"])
        assert (answered and answered["kind"]) in answers, name
        assert from_z in (None, frame["from_z"]), name
        key = keys[frame["key_name"]]
        assert domains[frame["key_name"]] in under, name
        assert not answered or answered["key_name"] == frame["key_name"], name
        sealed = AESGCM(key).encrypt(iv(frame), payload(frame), aad(frame, answered))
        assert payload(frame).hex() == frame["plaintext"], name
        assert iv(frame).hex() == frame["iv"] and aad(frame, answered).hex() == frame["aad"], name
        assert sealed.hex() == frame["ciphertext"] + frame["tag"], name
        assert (header(frame) + sealed).hex() == frame["frame"], name
        check_meaning(frame, answered)
        assert (key, iv(frame)) not in ivs, name
        ivs.add((key, iv(frame)))
    results = {it["fields"]["result"] for it in by_name.values() if it["kind"] == "rda"}
    assert results == {0, 1, 2, 3, 4}, "every answer is there"
    return f"StaR: {len(keys)} derived keys and {len(by_name)} frames are right"
