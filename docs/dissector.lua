-- Shows each frame of a packet of 1RMA or StaR as a tree of its own, by docs/WIRE.md, version 2, and
-- docs/STAR-WIRE.md, version 1:
--   wireshark -X lua_script:docs/dissector.lua capture.pcap
-- Links requests, answers and failures of 1RMA, and RD and GD with their answers of StaR. Expert items
-- show frames that a host dropped (from the comments of `rma-bench capture`), and IVs that came twice.
-- Payloads that `rma-bench decrypt` has put in place are shown as such. Wireshark from 4.6 on opens those
-- of 1RMA itself, by the lines 1RMA_KD of a key log (preference 1rma.keylog, or RMA_KEYLOGFILE).
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

local comment_of = Field.new("frame.comment")

-- What the comments of a packet say of each of its frames: its verdict, and whether it is in clear.
local function remarks()
    local verdicts, plain = {}, {}
    for _, it in ipairs({ comment_of() }) do
        for line in (tostring(it.value) .. "\n"):gmatch("([^\n]*)\n") do
            local number, said = line:match("^1rma (%d+)/%d+ (.+)$")
            if line == "1rma plain" then
                plain.all = true
            elseif said == "plain" then
                plain[tonumber(number)] = true
            elseif number then
                verdicts[tonumber(number)] = said
            end
        end
    end
    return verdicts, plain
end

local function hex(packet, at, octets) return packet(at, octets):bytes():tohex() end

-- Keys of 1RMA by what they are bound to, from a key log. Read once.
local function keys_of(path)
    local keys, file = {}, path and path ~= "" and io.open(path)
    if not file then return keys end
    for line in file:lines() do
        local bound, key = line:match("^1RMA_KD (%S+ %S+ %d+ %d+ %d+) (%x+)%s*$")
        if key and #key == 32 then
            keys[bound] = keys[bound] or {}
            table.insert(keys[bound], key)
        end
    end
    file:close()
    return keys
end

-- The plaintext of a payload, or nil: by any of `keys`. Wireshark before 4.6 has no cipher.
local function opened(keys, iv, aad, payload, tag)
    for _, key in ipairs(keys or {}) do
        local ok, plain = pcall(function()
            local cipher = GcryptCipher.open(GCRY_CIPHER_AES, GCRY_CIPHER_MODE_GCM, 0)
            cipher:setkey(ByteArray.new(key))
            cipher:setiv(ByteArray.new(iv))
            cipher:authenticate(ByteArray.new(aad))
            local plain = cipher:decrypt(NULL, payload)
            return cipher:checktag(tag) == 0 and plain
        end)
        if ok and plain then return plain end
    end
end

-- A protocol whose frames begin with `common`. `at_least` octets tell a frame's type and length:
-- `kind_at(packet, at)` is its type, or nil; its payload has `payload_len(kind, packet, at)` octets.
-- `ask_of(packet, at, info)` is the name of what a frame asks or answers, and whether it answers; or nil.
-- `iv_of(packet, at)` is the frame's IV.
local function protocol(id, name, version, at_least, common, types, kind_at, payload_len, ask_of, iv_of)
    local proto, declared = Proto(id, name), {
        payload = ProtoField.bytes(id .. ".payload", "payload, encrypted"),
        plain = ProtoField.bytes(id .. ".plain", "payload"),
        tag = ProtoField.bytes(id .. ".tag", "tag"),
        verdict = ProtoField.string(id .. ".verdict", "verdict of the host"),
        request_in = ProtoField.framenum(id .. ".request_in", "answers", base.NONE, frametype.REQUEST),
        answer_in = ProtoField.framenum(id .. ".answer_in", "answered in", base.NONE, frametype.RESPONSE),
        failure_in = ProtoField.framenum(id .. ".failure_in", "refused in", base.NONE, frametype.RESPONSE),
        iv_in = ProtoField.framenum(id .. ".iv_in", "the same IV in"),
    }
    local experts = {
        dropped = ProtoExpert.new(id .. ".dropped", "dropped by the host", expert.group.SEQUENCE,
            expert.severity.WARN),
        failed = ProtoExpert.new(id .. ".failed", "refused", expert.group.RESPONSE_CODE, expert.severity.NOTE),
        iv_reuse = ProtoExpert.new(id .. ".iv_reuse", "an IV for two frames", expert.group.SECURITY,
            expert.severity.ERROR),
        twice = ProtoExpert.new(id .. ".twice", "a frame that is twice in the capture", expert.group.SEQUENCE,
            expert.severity.NOTE),
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
    proto.fields, proto.experts = declared, experts

    -- What was found when a packet was seen first: of each frame, by packet and place. A packet is
    -- looked at again and again, in any order.
    local asks, ivs, facts = {}, {}, {}
    function proto.init() asks, ivs, facts = {}, {}, {} end

    -- The type and the length of the frame at an octet, and how much of it the capture has, which are
    -- all its headers; or nil, and why there is none.
    local function frame_at(packet, at, count)
        local left, on_wire = packet:len() - at, packet:reported_len() - at
        if count == FRAMES_MAX then return nil, "too many frames" end
        if on_wire < at_least then return nil, "length" end
        if left < at_least then return nil, "cut" end
        if packet(at, 1):uint() ~= version then return nil, "version" end
        local kind = kind_at(packet, at)
        if not kind then return nil, "frame type" end
        if on_wire < kind[2] + TAG then return nil, "length" end
        if left < kind[2] then return nil, "cut" end
        local len = kind[2] + TAG + payload_len(kind, packet, at)
        if len > on_wire then return nil, "length" end
        return kind, len, math.min(len, left)
    end

    -- The facts of a frame that is seen first.
    local function look(packet, at, len, kind, info)
        local fact = {}
        local iv = tostring(info.src) .. " " .. iv_of(packet, at)
        local tag = at + len <= packet:len() and hex(packet, at + len - TAG, TAG) or ""
        local before = ivs[iv]
        if before then
            fact.iv_in, fact.is_twice = before.number, before.tag == tag
        else
            ivs[iv] = { number = info.number, tag = tag }
        end
        local asked, answers, solicits = ask_of(packet, at, info)
        if asked and not answers then
            fact.ask = { number = info.number, iv = iv_of(packet, at), tag = tag, bound = solicits }
            if not (fact.is_twice and asks[asked]) then asks[asked] = fact.ask end
        elseif asked and asks[asked] then
            local ask = asks[asked]
            fact.to = ask
            fact.under = ask.solicitation or ask.iv
            if solicits then fact.under, ask.solicitation = ask.iv, iv_of(packet, at) end
            if kind[1] == "failure" then
                ask.failure_in = ask.failure_in or info.number
            elseif answers ~= "own" then
                ask.answer_in = ask.answer_in or info.number
            end
        end
        return fact
    end

    local function show(frame, fact, verdict)
        local function number(field, value) if value then frame:add(declared[field], value):set_generated() end end
        number("request_in", fact.to and fact.to.number)
        number("answer_in", fact.ask and fact.ask.answer_in)
        number("failure_in", fact.ask and fact.ask.failure_in)
        number("iv_in", fact.iv_in)
        if fact.ask and fact.ask.failure_in then frame:add_proto_expert_info(experts.failed) end
        if fact.iv_in then frame:add_proto_expert_info(fact.is_twice and experts.twice or experts.iv_reuse) end
        if verdict then frame:add(declared.verdict, verdict):set_generated() end
        local drop = verdict and verdict:match("drop=(%S+)")
        if drop then frame:add_proto_expert_info(experts.dropped, "dropped by the host: " .. drop) end
    end

    function proto.dissector(packet, info, tree)
        info.cols.protocol = name
        local root, at, names = tree:add(proto, packet()), 0, {}
        local verdicts, plain = remarks()
        local known = facts[info.number] or {}
        facts[info.number] = known
        while at < packet:len() do
            local kind, len, there = frame_at(packet, at, #names)
            if not kind then
                local tail = root:add(packet(at), string.format("tail of %d octets: %s", packet:len() - at, len))
                names[#names + 1] = "tail: " .. len
                show(tail, {}, verdicts[#names])
                break
            end
            names[#names + 1] = kind[1]
            local frame = root:add(packet(at, there), string.format("[%d] %s, %d octets%s", #names, kind[1], len,
                there < len and ", cut" or ""))
            for _, rows in ipairs({ common, kind[4], kind[5] }) do
                for _, row in ipairs(rows) do frame:add(declared[key(row)], packet(at + row[2], row[3])) end
            end
            local fact = known[at] or look(packet, at, len, kind, info)
            known[at] = fact
            local payload = len - kind[2] - TAG
            if payload > 0 and there == len then
                local octets, is_plain = packet(at + kind[2], payload), plain.all or plain[#names]
                frame:add(is_plain and declared.plain or declared.payload, octets)
                local text = not is_plain and GcryptCipher and proto.open and
                    proto.open(packet, at, kind, fact, octets:bytes(), packet(at + len - TAG, TAG):bytes())
                if text then
                    local tvb = text:tvb("plaintext")
                    frame:add(declared.plain, tvb())
                end
            end
            if there == len then frame:add(declared.tag, packet(at + len - TAG, TAG)) end
            show(frame, fact, verdicts[#names])
            at = at + len
        end
        info.cols.info = table.concat(names, ", ")
    end
    return proto
end

-- Whether a frame of 1RMA goes to the initiator. The op type that the key of a request is for; of
-- others the octet at 38 says it.
local TO_INITIATOR = { [2] = true, [3] = true, [6] = true, [8] = true, [10] = true, [12] = true }
local REQUESTS = { [1] = 1, [4] = 2, [5] = 3, [9] = 0, [11] = 0 }

local function iv_of_one_rma(packet, at)
    local direction = TO_INITIATOR[packet(at + 1, 1):uint()] and "01" or "00"
    return direction .. "00" .. hex(packet, at + 14, 2) .. hex(packet, at + 20, 8)
end

local one_rma = protocol("1rma", "1RMA", VERSION, 32, COMMON, TYPES, function(packet, at)
    return TYPES[packet(at + 1, 1):uint()]
end, function(kind, packet, at)
    return kind[3] == true and packet(at + 30, 2):uint() or kind[3] or 0
end, function(packet, at, info)
    -- An op: both hosts, PID, RegionId, slot and its generation.
    local code, hosts = packet(at + 1, 1):uint(), { tostring(info.src), tostring(info.dst) }
    if TO_INITIATOR[code] then hosts = { hosts[2], hosts[1] } end
    hosts = table.concat(hosts, " ")
    local op = REQUESTS[code] == 0 and packet(at + 38, 1):uint() or REQUESTS[code]
    local asked = hosts .. hex(packet, at + 4, 8) .. hex(packet, at + 12, 2) .. hex(packet, at + 16, 4)
    if op then
        return asked, false, string.format("%s %d %d %d", hosts, packet(at + 4, 4):uint(), op,
            packet(at + 8, 4):uint())
    end
    return asked, code == 7 and "own" or true, code == 6
end, iv_of_one_rma)

if GcryptCipher then
    one_rma.prefs.keylog = Pref.string("Key log", os.getenv("RMA_KEYLOGFILE") or "", "A file of lines 1RMA_KD")
    local path, keys
    function one_rma.open(packet, at, kind, fact, payload, tag)
        if path ~= one_rma.prefs.keylog then
            path = one_rma.prefs.keylog
            keys = keys_of(path)
        end
        local ask = fact.ask or fact.to
        if not ask then return nil end
        local aad = hex(packet, at, kind[2]) .. (fact.under or "")
        return opened(keys[ask.bound], iv_of_one_rma(packet, at), aad, payload, tag)
    end
end

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
end, function(packet, at, info)
    -- An RD or GD, by what its answer gives back.
    local code = packet(at + 1, 1):uint()
    local function name(source, destination, offset, sequence, copy)
        return table.concat({ tostring(source), tostring(destination), hex(packet, at + 4, 18),
            hex(packet, at + offset, 4), hex(packet, at + sequence, 4), hex(packet, at + copy, 1) }, " ")
    end
    if code == 0x24 or code == 0x26 then return name(info.src, info.dst, 60, 64, 70), false end
    if code == 0x25 or code == 0x27 then return name(info.dst, info.src, 36, 40, 47), true end
end, function(packet, at)
    -- Under one key: the connection's name is part of it.
    return packet(at + 2, 1):bitfield(5, 1) .. " " .. hex(packet, at + 4, 18) .. hex(packet, at + 22, 10)
end)

DissectorTable.get("udp.port"):add(PORT, one_rma)
for _, port in ipairs({ STATELESS_PORT, STATEFUL_PORT }) do
    DissectorTable.get("udp.port"):add(port, star)
end
