//! The frames of the golden vectors: one exchange of each kind, with fixed names.

use rma_core::crypto::EngineId;
use rma_star::{
    clock::{Time32, ZTime},
    handover::Handover,
    keys::{FrameKey, OpenSpan},
    names::{
        ConnectionName, Era, Generation, MrId, MrName, Nonce, PdId, Qpn, Sequence, Side, Slot,
        Taken,
    },
    verbs::{WcStatus, WqeOp},
    wire::{
        Answer, ChunkAnswer, Cqe, Cqep, EaEntry, EaOfF, EaOfZ, Gd, Gda, Guide, Header, KeyPhase,
        Rd, Rda, State, StateKind, Switch, Wqe, WqeKind, Wqep, switch,
    },
};
use serde_json::{Value, json};

/// The K_p that all keys of the file are derived under.
pub(crate) const PD_KEY: [u8; 16] = *b"K_p of the tests";

pub(crate) const CONNECTION: ConnectionName = ConnectionName {
    pd: PdId(0x0102_0304),
    qpn_z: Qpn::from_bits(0x1112_1314),
    qpn_f: Qpn::from_bits(0x2122_2324),
    nonce: Nonce(0x3132_3334),
    era: Era(0x4142),
};

/// Z's clock: its low half has gone round five times, and does so again before W is over.
const Z_NOW: ZTime = ZTime(0x5_ffff_f000);
const EXPIRY: ZTime = ZTime(0x6_0000_2e80);

pub(crate) fn connection_fields() -> Value {
    let ConnectionName { pd, qpn_z, qpn_f, nonce, era } = CONNECTION;
    json!({
        "pd": pd.0,
        "qpn_z": qpn_z.to_bits(),
        "qpn_f": qpn_f.to_bits(),
        "nonce": nonce.0,
        "era": era.0,
    })
}

/// The whole name of a memory region: what travels of it is the low half.
pub(crate) const fn name_of(mr: MrId) -> MrName {
    MrName(0x0001_0203 << 32 | mr.0 as u64)
}

/// The key that a frame is under.
pub(crate) enum KeyName {
    Connection,
    /// Of this half, whose Z connects.
    Half,
    Wqe(OpenSpan),
    Mr(WqeOp, MrId),
}

impl KeyName {
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Connection => "K_c".to_owned(),
            Self::Half => "K_h".to_owned(),
            Self::Wqe(span) => format!("K_w of {:?} {}", span.op, span.slot.0),
            Self::Mr(op, mr) => format!("K_m of {op:?} {}", mr.0),
        }
    }

    pub(crate) fn fields(&self) -> Value {
        match self {
            Self::Connection => json!({}),
            Self::Half => json!({ "half": true }),
            Self::Wqe(span) => json!({
                "op": span.op.code(),
                "slot": span.slot.0,
                "generation": span.generation.0,
                "mr": span.mr.0,
                "mr_offset": format!("{:016x}", span.mr_offset),
                "len": span.len,
            }),
            Self::Mr(op, mr) => json!({ "op": op.code(), "mr_name": name_of(*mr).0 }),
        }
    }
}

/// The further octets that a frame's tag covers, besides its header.
pub(crate) enum Answers {
    Nothing,
    Iv(&'static str),
}

/// A frame before it is sealed.
pub(crate) struct Frame {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) from_z: bool,
    pub(crate) key: KeyName,
    pub(crate) answers: Answers,
    pub(crate) time: u64,
    /// The octets of the header.
    pub(crate) header: Vec<u8>,
    /// The content of the common header.
    pub(crate) common: Value,
    /// The content of the rest of the header.
    pub(crate) fields: Value,
    /// The content of the payload, of those whose payload is entries.
    pub(crate) entries: Value,
    pub(crate) payload: Vec<u8>,
}

/// A WQE of Z whose data comes in.
pub(crate) fn recv_span() -> OpenSpan {
    let (slot, generation) = (Slot(0x51), Generation(0x5253_5455));
    let (mr, mr_offset) = (MrId(0x61), 0x1_0000_0040);
    OpenSpan { op: WqeOp::Recv, slot, generation, mr, mr_offset, len: 300 }
}

/// A WQE of Z whose data goes out.
pub(crate) fn send_span() -> OpenSpan {
    let (slot, generation) = (Slot(0x52), Generation(0x5657_5859));
    OpenSpan { op: WqeOp::Send, slot, generation, mr: MrId(0x62), mr_offset: 640, len: 100 }
}

/// Builds frames whose counters ascend.
struct Builder {
    frames: Vec<Frame>,
    counter: u64,
}

/// Bits of the flags of a frame besides its phase and side.
#[derive(Clone, Copy, Default)]
struct Flags {
    op: u8,
    wants_answer: bool,
    completes: bool,
}

const ANSWERED: Flags = Flags { op: 0, wants_answer: true, completes: false };

impl Builder {
    fn header(&mut self, side: Side) -> Header {
        self.counter += 0x0101;
        let (engine, time) = match side {
            Side::Stateful => (EngineId(3), EXPIRY),
            Side::Stateless => (EngineId(7), Z_NOW),
        };
        let (connection, phase) = (CONNECTION, KeyPhase::Odd);
        Header { connection, phase, engine, counter: self.counter, time: time.low() }
    }

    #[expect(clippy::too_many_arguments, reason = "a row of a table, each of another type")]
    fn add<const LEN: usize>(
        &mut self,
        (name, kind): (&'static str, &'static str),
        side: Side,
        header: &Header,
        flags: Flags,
        (key, answers): (KeyName, Answers),
        emit: impl FnOnce(&mut [u8; LEN]),
        fields: Value,
        (entries, payload): (Value, Vec<u8>),
    ) {
        let mut octets = [0xee; LEN];
        emit(&mut octets);
        let from_z = side == Side::Stateless;
        let time = if header.time == Time32(0) {
            0
        } else if from_z {
            Z_NOW.0
        } else {
            EXPIRY.0
        };
        let mut common = connection_fields();
        let more = json!({
            "op": flags.op,
            "wants_answer": flags.wants_answer,
            "completes": flags.completes,
            "odd_phase": header.phase == KeyPhase::Odd,
            "engine": header.engine.0,
            "counter": format!("{:016x}", header.counter),
        });
        let all = common.as_object_mut().expect("an object");
        all.extend(more.as_object().expect("an object").clone());
        let header = octets.to_vec();
        self.frames.push(Frame {
            name,
            kind,
            from_z,
            key,
            answers,
            time,
            header,
            common,
            fields,
            entries,
            payload,
        });
    }

    fn guide(&mut self, name: &'static str, rd: Option<Flags>, guide: Guide, key: KeyName) {
        let guide = Guide { header: self.header(Side::Stateful), ..guide };
        let fields = json!({
            "slot": guide.slot.0,
            "generation": guide.generation.0,
            "mr": guide.mr.0,
            "mr_offset": format!("{:016x}", guide.mr_offset),
            "wqe_len": guide.wqe_len,
            "chunk_offset": guide.chunk_offset,
            "sequence": guide.sequence.0,
            "chunk_len": guide.chunk_len,
            "copy": guide.copy,
        });
        let op = guide.op.code();
        let sealed = (key, Answers::Nothing);
        let side = Side::Stateful;
        match rd {
            Some(flags) => {
                let Flags { wants_answer, completes, .. } = flags;
                let rd = Rd { guide, wants_answer, completes };
                let payload = bytes(guide.chunk_len, guide.chunk_offset);
                let flags = Flags { op, ..flags };
                let emit = |out: &mut _| rd.emit(out);
                let payload = (Value::Null, payload);
                self.add((name, "rd"), side, &guide.header, flags, sealed, emit, fields, payload);
            }
            None => {
                let flags = Flags { op, ..ANSWERED };
                let emit = |out: &mut _| Gd { guide }.emit(out);
                let payload = (Value::Null, Vec::new());
                self.add((name, "gd"), side, &guide.header, flags, sealed, emit, fields, payload);
            }
        }
    }

    /// Answers the RD or GD of this name.
    fn answer(
        &mut self,
        name: &'static str,
        (of, guide, key): (&'static str, &Guide, KeyName),
        answer: Answer,
    ) {
        let is_gd = self.frames.iter().any(|it| it.name == of && it.kind == "gd");
        let said = ChunkAnswer::to(guide, self.header(Side::Stateless), answer, 250);
        let mut fields = json!({
            "chunk_offset": said.chunk_offset,
            "sequence": said.sequence.0,
            "delay_micros": said.delay_micros,
            "result": said.answer as u8,
            "copy": said.copy,
        });
        let flags = Flags { op: said.op.code(), ..Flags::default() };
        let sealed = (key, Answers::Iv(of));
        let side = Side::Stateless;
        if is_gd {
            let chunk_len = if answer == Answer::Done { guide.chunk_len } else { 0 };
            fields["chunk_len"] = json!(chunk_len);
            let gda = Gda { answer: said, chunk_len };
            let payload = (Value::Null, bytes(chunk_len, guide.chunk_offset));
            let emit = |out: &mut _| gda.emit(out);
            self.add((name, "gda"), side, &said.header, flags, sealed, emit, fields, payload);
        } else {
            let emit = |out: &mut _| Rda(said).emit(out);
            let payload = (Value::Null, Vec::new());
            self.add((name, "rda"), side, &said.header, flags, sealed, emit, fields, payload);
        }
    }

    fn under_connection<const LEN: usize>(
        &mut self,
        names: (&'static str, &'static str),
        side: Side,
        (header, flags): (&Header, Flags),
        emit: impl FnOnce(&mut [u8; LEN]),
        fields: Value,
        payload: (Value, Vec<u8>),
    ) {
        let sealed = (KeyName::Connection, Answers::Nothing);
        self.add(names, side, header, flags, sealed, emit, fields, payload);
    }

    fn state(&mut self, name: &'static str, sender: Side, kind: StateKind, payload: Vec<u8>) {
        let header = self.header(sender);
        let payload_len = payload.len() as u16;
        let state = State { header, sender, kind, number: 1, part: 1, of: 3, payload_len };
        let fields = json!({
            "part": 1,
            "of": 3,
            "kind": kind as u8,
            "number": 1,
            "payload_len": payload_len,
        });
        let emit = |out: &mut _| state.emit(out);
        let payload = (Value::Null, payload);
        self.under_connection((name, "state"), sender, (&header, ANSWERED), emit, fields, payload);
    }

    /// A change of roles.
    fn switches(&mut self) {
        let (z, f, number) = (Side::Stateless, Side::Stateful, Era(CONNECTION.era.0 + 1));
        for (name, side, kind, number) in [
            ("STATE that agrees to a switch", z, StateKind::Switch, number),
            ("STATE that aborts a switch", z, StateKind::Abort, number),
            // It is in the era that begins.
            ("STATE that commits a switch", f, StateKind::Commit, CONNECTION.era),
        ] {
            let fields = json!({ "number": number.0 });
            self.whole_state(name, side, kind, (fields, switch::named(number).to_vec()));
        }
        let asks = Switch { number, is_automatic: true };
        let fields = json!({ "number": number.0, "is_automatic": true });
        let payload = (fields, asks.to_octets().to_vec());
        self.whole_state("STATE that asks for a switch", f, StateKind::Switch, payload);
        let handover = Handover {
            era: number,
            packet_len_max: 1472,
            valid_micros: 16_000,
            clock: 0x0102_0304_0506_0708,
            pd: PdId(0x0a0b_0c0d),
            nonce: Nonce(0x1112_1314),
            giver: [Sequence(0x2122_2324), Sequence(0x3132_3334)],
            taker: [Sequence(0x4142_4344), Sequence(0x5152_5354)],
            key: FrameKey::from_bytes(std::array::from_fn(|at| 0xa0 + at as u8)),
        };
        let numbers = |it: [Sequence; 2]| it.map(|Sequence(number)| number);
        let fields = json!({
            "number": number.0,
            "packet_len_max": handover.packet_len_max,
            "valid_micros": handover.valid_micros,
            "clock": format!("{:016x}", handover.clock),
            "pd": handover.pd.0,
            "nonce": handover.nonce.0,
            "giver": numbers(handover.giver),
            "taker": numbers(handover.taker),
            "key": handover.key.expose().iter().map(|it| format!("{it:02x}")).collect::<String>(),
        });
        let payload = (fields, handover.to_octets().to_vec());
        self.whole_state("STATE that hands over", f, StateKind::Transfer, payload);
    }

    /// A STATE of one part, whose payload has fields.
    fn whole_state(
        &mut self,
        name: &'static str,
        sender: Side,
        kind: StateKind,
        payload: (Value, Vec<u8>),
    ) {
        let header = self.header(sender);
        let payload_len = payload.1.len() as u16;
        let state = State { header, sender, kind, number: 0, part: 0, of: 1, payload_len };
        let fields = json!({
            "part": 0,
            "of": 1,
            "kind": kind as u8,
            "number": 0,
            "payload_len": payload_len,
        });
        let emit = |out: &mut _| state.emit(out);
        self.under_connection((name, "state"), sender, (&header, ANSWERED), emit, fields, payload);
    }
}

/// So many octets of a message, from this place of it on.
fn bytes(len: u16, from: u32) -> Vec<u8> {
    (0..u32::from(len)).map(|i| ((from + i) * 7 + 3) as u8).collect()
}

fn guide_of(span: OpenSpan, chunk_offset: u32, chunk_len: u16) -> Guide {
    let header = Header {
        connection: CONNECTION,
        phase: KeyPhase::Odd,
        engine: EngineId(0),
        counter: 0,
        time: Time32(0),
    };
    let OpenSpan { op, slot, generation, mr, mr_offset, len: wqe_len } = span;
    let (sequence, copy) = (Sequence(0x7172_7374), 2);
    Guide {
        header,
        op,
        slot,
        generation,
        mr,
        mr_offset,
        wqe_len,
        chunk_offset,
        chunk_len,
        sequence,
        copy,
    }
}

fn wqe_fields(wqe: &Wqe) -> Value {
    let op = match wqe.kind {
        WqeKind::Transfer(op) => op.code(),
        WqeKind::Switch => 4,
    };
    json!({
        "slot": wqe.slot.0,
        "generation": wqe.generation.0,
        "sequence": wqe.sequence.0,
        "open_before": wqe.open_before,
        "op": op,
        "mr": wqe.mr.0,
        "len": wqe.len,
        "mr_offset": format!("{:016x}", wqe.mr_offset),
        "remote_offset": format!("{:016x}", wqe.remote_offset),
        "remote_mr": wqe.remote_mr.0,
        "immediate": wqe.immediate,
        "is_inline": wqe.is_inline,
        "key": wqe.key.expose().iter().map(|it| format!("{it:02x}")).collect::<String>(),
    })
}

/// A CQEP of so many CQEs.
fn cqep_of(header: Header, count: u8, wants_answer: bool) -> Cqep {
    Cqep { header, count, wants_answer, state_number: 2, state_parts: 3 }
}

/// The WQE that opens `span`, under `key`.
fn wqe_of(span: OpenSpan, key: FrameKey) -> Wqe {
    let OpenSpan { op, slot, generation, mr, mr_offset, len } = span;
    Wqe {
        slot,
        generation,
        sequence: Sequence(0x7172_7374),
        open_before: 0x7576,
        kind: WqeKind::Transfer(op),
        mr,
        mr_offset,
        len,
        remote_mr: MrId(0),
        remote_offset: 0,
        immediate: None,
        is_inline: false,
        key,
    }
}

/// All frames. `recv` and `send` are the K_w of the two spans.
pub(crate) fn frames(recv: FrameKey, send: FrameKey) -> Vec<Frame> {
    let (f, z) = (Side::Stateful, Side::Stateless);
    let mut all = Builder { frames: Vec::new(), counter: 0x0102_0304_0506_0708 };

    let inline =
        Wqe { len: 5, immediate: Some(0x8182_8384), is_inline: true, ..wqe_of(send_span(), send) };
    let switch = Wqe {
        kind: WqeKind::Switch,
        open_before: 0,
        mr: MrId(0),
        mr_offset: 0,
        len: 0,
        ..wqe_of(send_span(), FrameKey::from_bytes([0; 16]))
    };
    let wqes = [wqe_of(recv_span(), recv), wqe_of(send_span(), send), inline, switch];
    let mut payload = Vec::new();
    for wqe in &wqes {
        let mut octets = [0; 64];
        wqe.emit(&mut octets);
        payload.extend(octets);
    }
    payload.extend(b"hello");
    let header = all.header(z);
    let wqep = Wqep { header, count: 4, inline_len: 5 };
    let entries = Value::Array(wqes.iter().map(wqe_fields).collect());
    let fields = json!({ "count": 4, "inline_len": 5 });
    let emit = |out: &mut _| wqep.emit(out);
    let head = (&header, ANSWERED);
    all.under_connection(("WQEP", "wqep"), z, head, emit, fields, (entries, payload));

    let header = all.header(f);
    let ea = EaOfF { header, state_number: 2, state_parts: 3 };
    let taken = Taken { send: Sequence(0x7172_7376), recv: Sequence(0x7172_7375) };
    let fields = json!({ "state_number": 2, "state_parts": 3 });
    let entries = json!({ "send": taken.send.0, "recv": taken.recv.0 });
    let emit = |out: &mut _| ea.emit(out);
    let (head, payload) = ((&header, Flags::default()), taken.to_octets().to_vec());
    all.under_connection(("EA of F", "ea of f"), f, head, emit, fields, (entries, payload));

    let key = || KeyName::Wqe(recv_span());
    let answered = Some(Flags { wants_answer: true, ..Flags::default() });
    let first = guide_of(recv_span(), 0, 128);
    all.guide("RD", answered, first, key());
    for (name, answer) in [
        ("RDA done", Answer::Done),
        ("RDA gone", Answer::Gone),
        ("RDA busy", Answer::Busy),
        ("RDA clock", Answer::Clock),
        ("RDA denied", Answer::Denied),
    ] {
        all.answer(name, ("RD", &first, key()), answer);
    }
    let last = guide_of(recv_span(), 128, 72);
    let completes = Some(Flags { completes: true, ..Flags::default() });
    all.guide("RD that completes", completes, last, key());
    let empty = guide_of(recv_span(), 0, 0);
    all.guide("RD that completes a message of no octets", completes, empty, key());

    let key = || KeyName::Wqe(send_span());
    let asked = guide_of(send_span(), 64, 36);
    all.guide("GD", None, asked, key());
    all.answer("GDA", ("GD", &asked, key()), Answer::Done);
    all.answer("GDA denied", ("GD", &asked, key()), Answer::Denied);

    for op in [WqeOp::Write, WqeOp::Read] {
        let (slot, generation) = (Slot::NONE, Generation(0));
        let (mr, mr_offset) = (MrId(0x63), 0x2000);
        let own = OpenSpan { op, slot, generation, mr, mr_offset, len: 64 };
        let guide = guide_of(own, 0, 64);
        let key = || KeyName::Mr(op, own.mr);
        if op == WqeOp::Write {
            all.guide("RD of F's WRITE", answered, guide, key());
            all.answer("RDA of F's WRITE", ("RD of F's WRITE", &guide, key()), Answer::Done);
        } else {
            all.guide("GD of F's READ", None, guide, key());
            all.answer("GDA of F's READ", ("GD of F's READ", &guide, key()), Answer::Done);
        }
    }

    for (op, generation, mr, mr_offset) in [
        (WqeOp::Recv, Generation(0x7172_7374), MrId(0), 0),
        (WqeOp::Write, Generation(0), MrId(0x64), 0x3000),
        (WqeOp::Read, Generation(0), MrId(0x64), 0x3000),
    ] {
        let span = OpenSpan { op, slot: Slot::RC, generation, mr, mr_offset, len: 100 };
        let guide = guide_of(span, 64, 36);
        let key = || KeyName::Half;
        match op {
            WqeOp::Recv => all.guide("RD of RC that completes", completes, guide, key()),
            WqeOp::Write => all.guide("RD of RC's WRITE", Some(Flags::default()), guide, key()),
            _ => {
                all.guide("GD of RC's READ", None, guide, key());
                all.answer("GDA of RC's READ", ("GD of RC's READ", &guide, key()), Answer::Done);
            }
        }
    }

    let cqe = Cqe {
        slot: recv_span().slot,
        generation: recv_span().generation,
        sequence: Sequence(0x7172_7374),
        byte_len: 200,
        status: WcStatus::Success,
        op: WqeOp::Recv,
        immediate: Some(0x9192_9394),
        is_of_write: false,
    };
    let of_write = Cqe { byte_len: 1 << 30, is_of_write: true, ..cqe };
    let failed = Cqe {
        slot: send_span().slot,
        generation: send_span().generation,
        byte_len: 0,
        status: WcStatus::RemInvReqErr,
        op: WqeOp::Send,
        immediate: None,
        ..cqe
    };
    let cqes = [cqe, of_write, failed, Cqe::PROBE];
    let mut payload = taken.to_octets().to_vec();
    for cqe in &cqes {
        let mut octets = [0; 24];
        cqe.emit(&mut octets);
        payload.extend(octets);
    }
    let cqe_fields = |cqe: &Cqe| {
        json!({
            "slot": cqe.slot.0,
            "generation": cqe.generation.0,
            "sequence": cqe.sequence.0,
            "byte_len": cqe.byte_len,
            "status": cqe.status.code(),
            "op": cqe.op.code(),
            "immediate": cqe.immediate,
            "is_of_write": cqe.is_of_write,
        })
    };
    let entries_of = |cqes: &[Cqe]| {
        let cqes: Vec<_> = cqes.iter().map(cqe_fields).collect();
        json!({ "send": taken.send.0, "recv": taken.recv.0, "cqes": cqes })
    };
    let fields_of = |count: u8| json!({ "count": count, "state_number": 2, "state_parts": 3 });
    for (name, flags) in [("CQEP", ANSWERED), ("CQEP that wants no EA", Flags::default())] {
        let header = all.header(f);
        let cqep = cqep_of(header, 4, flags.wants_answer);
        let emit = |out: &mut _| cqep.emit(out);
        let told = (entries_of(&cqes), payload.clone());
        all.under_connection((name, "cqep"), f, (&header, flags), emit, fields_of(4), told);
    }
    let header = all.header(f);

    let answered = [(header.counter, 0b1111, Answer::Done), (header.counter - 1, 0, Answer::Gone)];
    let mut payload = Vec::new();
    for (counter, taken, answer) in answered {
        let mut octets = [0; 16];
        EaEntry { counter, taken, answer }.emit(&mut octets);
        payload.extend(octets);
    }
    let entry_fields = |(counter, taken, answer): &(u64, u32, Answer)| json!({ "counter": format!("{counter:016x}"), "taken": taken, "result": *answer as u8 });
    let entries = Value::Array(answered.iter().map(entry_fields).collect());
    let header = all.header(z);
    let ea = EaOfZ { header, count: 2, delay_micros: 65_535 };
    let emit = |out: &mut _| ea.emit(out);
    let (head, fields) =
        ((&header, Flags::default()), json!({ "count": 2, "delay_micros": 65_535 }));
    all.under_connection(("EA of Z", "ea of z"), z, head, emit, fields, (entries, payload));

    all.state("STATE of Z", z, StateKind::Initial, bytes(100, 0));
    all.state("STATE of F", f, StateKind::Transfer, bytes(16, 0));
    all.switches();

    let header = all.header(f);
    let cqep = cqep_of(header, 1, true);
    let mut entry = [0; 24];
    Cqe::PROBE.emit(&mut entry);
    let emit = |out: &mut _| cqep.emit(out);
    let (head, fields) = ((&header, ANSWERED), fields_of(1));
    let payload = [&taken.to_octets()[..], &entry].concat();
    let payload = (entries_of(&[Cqe::PROBE]), payload);
    all.under_connection(("CQEP that probes", "cqep"), f, head, emit, fields, payload);
    all.frames
}
