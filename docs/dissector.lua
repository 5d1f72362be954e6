-- Shows each frame of a packet of 1RMA as a tree of its own, by docs/WIRE.md, version 2:
--   wireshark -X lua_script:docs/dissector.lua capture.pcap
-- Another port than 10472: "Decode as ..." in Wireshark, -d udp.port==PORT,1rma in tshark.
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

local proto = Proto("1rma", "1RMA")
local MAKE = { [1] = ProtoField.uint8, [2] = ProtoField.uint16, [4] = ProtoField.uint32, [8] = ProtoField.uint64 }
local declared = { payload = ProtoField.bytes("1rma.payload", "payload, encrypted"), tag = ProtoField.bytes("1rma.tag", "tag") }
local function declare(rows)
    for _, row in ipairs(rows) do
        local name, octets = row[1], row[3]
        declared[name .. octets] = declared[name .. octets] or MAKE[octets]("1rma." .. name, (name:gsub("_", " ")))
    end
end
declare(COMMON)
for _, kind in pairs(TYPES) do declare(kind[4]) end
proto.fields = declared

-- The type and the length of the frame at an octet; or nil, and why there is none.
local function frame_at(packet, at, count)
    local left = packet:len() - at
    if count == FRAMES_MAX then return nil, "too many frames" end
    if left < 32 then return nil, "length" end
    if packet(at, 1):uint() ~= VERSION then return nil, "version" end
    local kind = TYPES[packet(at + 1, 1):uint()]
    if not kind then return nil, "frame type" end
    local told = kind[3] == true and packet(at + 30, 2):uint()
    local len = kind[2] + TAG + (told or kind[3] or 0)
    if len > left then return nil, "length" end
    return kind, len
end

function proto.dissector(packet, info, tree)
    info.cols.protocol = "1RMA"
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
        for _, rows in ipairs({ COMMON, kind[4] }) do
            for _, row in ipairs(rows) do frame:add(declared[row[1] .. row[3]], packet(at + row[2], row[3])) end
        end
        local payload = len - kind[2] - TAG
        if payload > 0 then frame:add(declared.payload, packet(at + kind[2], payload)) end
        frame:add(declared.tag, packet(at + len - TAG, TAG))
        at = at + len
    end
    info.cols.info = table.concat(names, ", ")
end

DissectorTable.get("udp.port"):add(PORT, proto)
