-- Shows each frame of a packet of 1RMA or StaR as a tree of its own, by docs/WIRE.md, version 2, and
-- docs/STAR-WIRE.md, version 1:
--   wireshark -X lua_script:docs/dissector.lua capture.pcap
-- Other ports than 10472, 10474 and 10475: "Decode as ..." in Wireshark, -d udp.port==PORT,1rma (or
-- star) in tshark.
local VERSION, FRAMES_MAX, TAG, PORT = 2, 32, 16, 10472

-- Rows of fields: name, octet where it begins, octets.
local COMMON = {
    { "version", 0, 1 }, { "frame_type", 1, 1 }, { "class", 2, 1 }, { "status", 3, 1 },
    { "pid", 4, 4 }, { "region", 8, 4 }, { "slot", 12, 2 }, { "engine", 14, 2 },
    { "generation", 16, 4 }, { "counter", 20, 8 },
}
local OP = { { "region_offset", 28, 8 }, { "op_size", 36, 2 } }
local MUTATION = { OP[1], OP[2], { "reserved", 38, 2 }, { "timeout_micros", 40, 4 } }
local NOTICE = { { "reserved", 28, 4 } }
-- Types: name, octets of the header, of the payload (true: the header says how many), fields.
local TYPES = {
    [1] = { "read request", 40, false, { OP[1], OP[2], { "payload_len_max", 38, 2 } } },
    [2] = { "read response", 32, true, { { "op_offset", 28, 2 }, { "payload_len", 30, 2 } } },
    [3] = { "failure", 32, false, NOTICE },
    [4] = { "write request", 44, false, MUTATION },
    [5] = { "rekey request", 44, false, MUTATION },
    [6] = { "solicitation", 32, false, { { "pending_write", 28, 2 }, { "payload_len_max", 30, 2 } } },
    [7] = { "solicited data", 36, true, { { "pending_write", 28, 2 }, { "payload_len", 30, 2 },
        { "op_offset", 32, 2 }, { "reserved", 34, 2 } } },
    [8] = { "acknowledgement", 32, false, NOTICE },
    [9] = { "recorded request", 56, 8, { OP[1], OP[2], { "op_type", 38, 1 }, { "flags", 39, 1 },
        { "timeout_micros", 40, 4 }, { "done_counter", 44, 8 }, { "done_number", 52, 2 }, { "reserved", 54, 2 } } },
    [10] = { "acknowledgement with result", 32, 8, NOTICE },
    [11] = { "settle request", 44, false, { { "of_counter", 28, 8 }, { "of_engine", 36, 2 }, { "op_type", 38, 1 },
        { "zero", 39, 1 }, { "of_number", 40, 2 }, { "reserved", 42, 2 } } },
    [12] = { "settlement", 32, 8, { { "verdict", 28, 2 }, { "reserved", 30, 2 } } },
}

-- StaR. A type's payload: fields of its header, how many octets each of what they count has, and how
-- many there are besides; or octets. A field's fourth is its bits, if others share its octets.
local STAR_VERSION, STATELESS_PORT, STATEFUL_PORT = 1, 10474, 10475
local STAR_COMMON = {
    { "version", 0, 1 }, { "frame_type", 1, 1 }, { "op", 2, 1, 0xc0 }, { "wants_answer", 2, 1, 0x20 },
    { "completes", 2, 1, 0x10 }, { "odd_phase", 2, 1, 0x08 }, { "from_z", 2, 1, 0x04 },
    { "zero", 2, 1, 0x03 }, { "reserved", 3, 1 }, { "pd", 4, 4 }, { "qpn_z", 8, 4 }, { "qpn_f", 12, 4 },
    { "nonce", 16, 4 }, { "era", 20, 2 }, { "engine", 22, 2 }, { "counter", 24, 8 }, { "time", 32, 4 },
}
local GUIDE = {
    { "slot", 36, 4 }, { "generation", 40, 4 }, { "mr", 44, 4 }, { "mr_offset", 48, 8 },
    { "wqe_len", 56, 4 }, { "chunk_offset", 60, 4 }, { "sequence", 64, 4 }, { "chunk_len", 68, 2 },
    { "copy", 70, 1 }, { "reserved", 71, 1 },
}
local CHUNK = {
    { "chunk_offset", 36, 4 }, { "sequence", 40, 4 }, { "delay_micros", 44, 2 }, { "result", 46, 1 },
    { "copy", 47, 1 },
}
local STAR_TYPES = {
    [0x21] = { "wqep", 40, { { 36, 1, 64 }, { 38, 2, 1 } }, { { "count", 36, 1 }, { "reserved", 37, 1 },
        { "inline_len", 38, 2 } } },
    [0x22] = { "cqep", 40, { { 36, 1, 24, 8 } }, { { "count", 36, 1 }, { "state_number", 37, 1 },
        { "state_parts", 38, 2 } } },
    [0x23] = { "ea of f", 40, 8, { { "state_number", 36, 1 }, { "reserved", 37, 1 },
        { "state_parts", 38, 2 } } },
    [0x24] = { "rd", 72, { { 68, 2, 1 } }, GUIDE },
    [0x25] = { "rda", 48, 0, CHUNK },
    [0x26] = { "gd", 72, 0, GUIDE },
    [0x27] = { "gda", 52, { { 48, 2, 1 } }, CHUNK, { { "chunk_len", 48, 2 }, { "reserved", 50, 2 } } },
    [0x28] = { "state", 44, { { 42, 2, 1 } }, { { "part", 36, 2 }, { "of", 38, 2 }, { "kind", 40, 1 },
        { "number", 41, 1 }, { "payload_len", 42, 2 } } },
    ea_of_z = { "ea of z", 40, { { 36, 1, 16 } }, { { "count", 36, 1 }, { "reserved", 37, 1 },
        { "delay_micros", 38, 2 } } },
}

local MAKE = { ProtoField.uint8, ProtoField.uint16, ProtoField.uint24, ProtoField.uint32,
    [8] = ProtoField.uint64 }

-- A protocol whose frames begin with `common`. `at_least` octets tell a frame's type and length:
-- `kind_at(packet, at)` is its type, or nil; its payload has `payload_len(kind, packet, at)` octets.
local function protocol(id, name, version, at_least, common, types, kind_at, payload_len)
    local proto, declared = Proto(id, name), {
        payload = ProtoField.bytes(id .. ".payload", "payload, encrypted"),
        tag = ProtoField.bytes(id .. ".tag", "tag"),
    }
    local function key(row) return row[1] .. row[3] end
    local function declare(rows)
        for _, row in ipairs(rows) do
            declared[key(row)] = declared[key(row)] or MAKE[row[3]](id .. "." .. row[1],
                (row[1]:gsub("_", " ")), base.DEC, nil, row[4])
        end
    end
    declare(common)
    for _, kind in pairs(types) do
        for i = 4, #kind do declare(kind[i]) end
    end
    proto.fields = declared

    -- The type and the length of the frame at an octet; or nil, and why there is none.
    local function frame_at(packet, at, count)
        local left = packet:len() - at
        if count == FRAMES_MAX then return nil, "too many frames" end
        if left < at_least then return nil, "length" end
        if packet(at, 1):uint() ~= version then return nil, "version" end
        local kind = kind_at(packet, at)
        if not kind then return nil, "frame type" end
        if left < kind[2] + TAG then return nil, "length" end
        local len = kind[2] + TAG + payload_len(kind, packet, at)
        if len > left then return nil, "length" end
        return kind, len
    end

    function proto.dissector(packet, info, tree)
        info.cols.protocol = name
        local root, at, names = tree:add(proto, packet()), 0, {}
        while at < packet:len() do
            local kind, len = frame_at(packet, at, #names)
            if not kind then
                root:add(packet(at), string.format("tail of %d octets: %s", packet:len() - at, len))
                names[#names + 1] = "tail: " .. len
                break
            end
            names[#names + 1] = kind[1]
            local frame = root:add(packet(at, len), string.format("[%d] %s, %d octets", #names, kind[1], len))
            for _, rows in ipairs({ common, kind[4], kind[5] }) do
                for _, row in ipairs(rows) do frame:add(declared[key(row)], packet(at + row[2], row[3])) end
            end
            local payload = len - kind[2] - TAG
            if payload > 0 then frame:add(declared.payload, packet(at + kind[2], payload)) end
            frame:add(declared.tag, packet(at + len - TAG, TAG))
            at = at + len
        end
        info.cols.info = table.concat(names, ", ")
    end
    return proto
end

local one_rma = protocol("1rma", "1RMA", VERSION, 32, COMMON, TYPES, function(packet, at)
    return TYPES[packet(at + 1, 1):uint()]
end, function(kind, packet, at)
    return kind[3] == true and packet(at + 30, 2):uint() or kind[3] or 0
end)

local star = protocol("star", "StaR", STAR_VERSION, 36, STAR_COMMON, STAR_TYPES, function(packet, at)
    local code, from_z = packet(at + 1, 1):uint(), packet(at + 2, 1):bitfield(5, 1) == 1
    return STAR_TYPES[code == 0x23 and from_z and "ea_of_z" or code]
end, function(kind, packet, at)
    if type(kind[3]) == "number" then return kind[3] end
    local len = 0
    for _, told in ipairs(kind[3]) do
        len = len + told[3] * packet(at + told[1], told[2]):uint() + (told[4] or 0)
    end
    return len
end)

DissectorTable.get("udp.port"):add(PORT, one_rma)
for _, port in ipairs({ STATELESS_PORT, STATEFUL_PORT }) do
    DissectorTable.get("udp.port"):add(port, star)
end
