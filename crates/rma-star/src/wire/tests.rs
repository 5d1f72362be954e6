use std::collections::BTreeSet;

use proptest::prelude::*;
use rma_core::{crypto::EngineId, packet};

use super::*;
use crate::{
    clock::Time32,
    keys::FrameKey,
    limits::ANSWERED_MAX,
    names::{ConnectionName, Era, Generation, MrId, Nonce, PdId, Qpn, Sequence, Slot, Taken},
    verbs::{WcStatus, WqeOp},
};
use entries::CQE_LEN;

const HEADER: Header = Header {
    connection: ConnectionName {
        pd: PdId(0x0102_0304),
        qpn_z: Qpn::from_bits(0x1112_1314),
        qpn_f: Qpn::from_bits(0x2122_2324),
        nonce: Nonce(0x3132_3334),
        era: Era(0x4142),
    },
    phase: KeyPhase::Odd,
    engine: EngineId(0x5152),
    counter: 0x6162_6364_6566_6768,
    time: Time32(0x7172_7374),
};

const GUIDE: Guide = Guide {
    header: HEADER,
    op: WqeOp::Recv,
    slot: Slot(5),
    generation: Generation(6),
    mr: MrId(7),
    mr_offset: 1 << 40,
    wqe_len: 1000,
    chunk_offset: 64,
    chunk_len: 100,
    sequence: Sequence(8),
    copy: 9,
};

const ANSWER: ChunkAnswer = ChunkAnswer {
    header: HEADER,
    op: WqeOp::Read,
    chunk_offset: 64,
    sequence: Sequence(8),
    copy: 9,
    delay_micros: 10,
    answer: Answer::Done,
};

const WQE: Wqe = Wqe {
    slot: Slot(5),
    generation: Generation(6),
    sequence: Sequence(8),
    open_before: 9,
    kind: WqeKind::Transfer(WqeOp::Write),
    mr: MrId(7),
    mr_offset: 1 << 40,
    len: 20,
    remote_mr: MrId(11),
    remote_offset: 12,
    immediate: Some(13),
    is_inline: true,
    key: FrameKey::from_bytes([14; 16]),
};

const CQE: Cqe = Cqe {
    slot: Slot(5),
    generation: Generation(6),
    sequence: Sequence(8),
    byte_len: 100,
    status: WcStatus::Success,
    op: WqeOp::Recv,
    immediate: Some(13),
    is_of_write: false,
};

/// A frame with this header; payload and tag are zeros.
fn frame(view: &FrameView) -> Vec<u8> {
    let mut octets = vec![0; view.len()];
    let out = &mut octets[..];
    match view {
        FrameView::Wqep(it) => it.0.emit(out.first_chunk_mut().unwrap()),
        FrameView::Cqep(it) => it.0.emit(out.first_chunk_mut().unwrap()),
        FrameView::EaOfZ(it) => it.0.emit(out.first_chunk_mut().unwrap()),
        FrameView::EaOfF(it) => it.0.emit(out.first_chunk_mut().unwrap()),
        FrameView::Rd(it) => it.0.emit(out.first_chunk_mut().unwrap()),
        FrameView::Rda(it) => it.0.emit(out.first_chunk_mut().unwrap()),
        FrameView::Gd(it) => it.0.emit(out.first_chunk_mut().unwrap()),
        FrameView::Gda(it) => it.0.emit(out.first_chunk_mut().unwrap()),
        FrameView::State(it) => it.0.emit(out.first_chunk_mut().unwrap()),
    }
    octets
}

/// Frames of every kind.
fn samples() -> Vec<FrameView> {
    let rd = |guide, wants_answer, completes| {
        FrameView::Rd(Claimed(Rd { guide, wants_answer, completes }))
    };
    let own = Guide { slot: Slot::NONE, generation: Generation(0), ..GUIDE };
    let whole = Guide { chunk_len: 64, ..GUIDE };
    let empty = Guide { chunk_offset: 0, chunk_len: 0, ..GUIDE };
    let state = |sender| State {
        header: HEADER,
        sender,
        kind: StateKind::Transfer,
        number: 3,
        part: 1,
        of: 2,
        payload_len: 300,
    };
    let gda = |op, answer, chunk_len| {
        FrameView::Gda(Claimed(Gda { answer: ChunkAnswer { op, answer, ..ANSWER }, chunk_len }))
    };
    let gd = |guide| FrameView::Gd(Claimed(Gd { guide }));
    let rc = Guide { slot: Slot::RC, ..whole };
    let place = Guide { mr: MrId(0), mr_offset: 0, ..rc };
    let last = Guide { chunk_len: 100, chunk_offset: 64, wqe_len: 164, ..place };
    let memory = Guide { generation: Generation(0), ..rc };
    let cqep = |wants_answer| {
        let (state_number, state_parts) = (4, 5);
        let header = HEADER;
        FrameView::Cqep(Claimed(Cqep { header, count: 3, wants_answer, state_number, state_parts }))
    };
    vec![
        rd(place, false, false),
        rd(last, false, true),
        rd(Guide { op: WqeOp::Write, ..memory }, false, false),
        gd(Guide { op: WqeOp::Read, ..memory }),
        FrameView::Wqep(Claimed(Wqep { header: HEADER, count: 2, inline_len: 40 })),
        cqep(true),
        cqep(false),
        FrameView::EaOfZ(Claimed(EaOfZ { header: HEADER, count: 4, delay_micros: 5 })),
        FrameView::EaOfF(Claimed(EaOfF { header: HEADER, state_number: 6, state_parts: 7 })),
        rd(GUIDE, true, false),
        rd(GUIDE, false, true),
        rd(empty, false, true),
        rd(Guide { op: WqeOp::Read, ..whole }, true, false),
        rd(Guide { op: WqeOp::Write, ..Guide { chunk_len: 64, ..own } }, true, false),
        FrameView::Rda(Claimed(Rda(ANSWER))),
        gd(Guide { op: WqeOp::Send, ..whole }),
        gd(Guide { op: WqeOp::Write, chunk_offset: 960, chunk_len: 40, ..GUIDE }),
        gd(Guide { op: WqeOp::Read, chunk_len: 64, ..own }),
        gda(WqeOp::Read, Answer::Done, 64),
        gda(WqeOp::Send, Answer::Gone, 0),
        FrameView::State(Claimed(state(Side::Stateless))),
        FrameView::State(Claimed(state(Side::Stateful))),
    ]
}

/// Looks at octets in each way that a receiver does. What they are taken for says all that is in
/// the header: written again, it is the same.
fn is_taken(octets: &[u8]) -> bool {
    let len = frame_len(octets);
    let Ok(view) = FrameView::parse(octets) else { return false };
    assert_eq!(len, Ok(octets.len()));
    assert_eq!(frame(&view)[..view.header_len()], octets[..view.header_len()]);
    true
}

//= star#IV-A-format
//= type=test
//= star#III-B-seven-types
//= type=test
//= star#III-B-rd
//= type=test
//= star#III-B-rda
//= type=test
//= star#III-B-gd
//= type=test
//= star#III-B-gda
//= type=test
#[test]
fn a_written_frame_is_read_again_and_has_the_documented_length() {
    let lens: Vec<usize> = samples().iter().map(|view| frame(view).len()).collect();
    let documented = [
        88 + 64,
        88 + 100,
        88 + 64,
        88,
        56 + 2 * 64 + 40,
        64 + 3 * 24,
        64 + 3 * 24,
        56 + 4 * 16,
        64,
        88 + 100,
        88 + 100,
        88,
        88 + 64,
        88 + 64,
        64,
        88,
        88,
        88,
        68 + 64,
        68,
        60 + 300,
        60 + 300,
    ];
    assert_eq!(lens, documented);
    for view in samples() {
        let octets = frame(&view);
        assert_eq!(FrameView::parse(&octets), Ok(view));
        let [sender, engine] = [u8::from(octets[2] & 4 != 0), octets[23]];
        assert_eq!(view.iv().octets()[..4], [sender, 0, octets[22], engine]);
        assert_eq!(view.iv().octets()[4..], octets[24..32]);
    }
    let types: BTreeSet<u8> = samples().iter().map(|view| frame(view)[1]).collect();
    assert!(types.into_iter().eq(FrameType::ALL.map(|it| it as u8)));
    assert_eq!((FRAME_LEN_MIN, FRAME_LEN_MAX), (152, 4184));
}

#[test]
fn a_frame_is_found_in_front_of_others_and_not_where_octets_of_it_are_missing() {
    for view in samples() {
        let octets = frame(&view);
        for len in 0..octets.len() {
            assert_eq!(frame_len(&octets[..len]), Err(DropReason::Length), "{view:?}");
            assert_eq!(FrameView::parse(&octets[..len]), Err(Malformed::Length), "{view:?}");
        }
        let several = [&octets[..], &octets[..]].concat();
        assert_eq!(frame_len(&several), Ok(octets.len()));
        assert_eq!(FrameView::parse(&several), Err(Malformed::Length));
    }
}

#[test]
fn versions_and_types_of_others_are_none_of_ours() {
    let mut octets = frame(&samples()[0]);
    for version in (0..=u8::MAX).filter(|&it| it != VERSION) {
        octets[0] = version;
        assert_eq!(FrameView::parse(&octets), Err(Malformed::Version));
        assert_eq!(frame_len(&octets), Err(DropReason::Version));
    }
    octets[0] = VERSION;
    for code in (0..=u8::MAX).filter(|it| !(0x21..=0x28).contains(it)) {
        octets[1] = code;
        assert_eq!(FrameView::parse(&octets), Err(Malformed::FrameType));
        assert_eq!(frame_len(&octets), Err(DropReason::FrameType));
    }
    assert_ne!(VERSION, rma_core::wire::VERSION, "1RMA's frames are none of StaR's either");
}

//= star#ours-no-field-ignored
//= type=test
#[test]
fn no_bit_of_a_header_is_ignored() {
    for view in samples() {
        let octets = frame(&view);
        let mut taken = 0;
        for bit in 0..8 * view.header_len() {
            let mut other = octets.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            taken += usize::from(is_taken(&other));
        }
        // Names, engine, counter and time may have any value.
        assert!(taken >= 8 * 32, "{view:?}: {taken}");
    }
}

//= star#III-B-rd
//= type=test
//= star#III-B-gd
//= type=test
#[test]
fn guides_that_make_no_sense_are_refused() {
    let is_rd = |guide: Guide, completes| {
        let wants_answer = !guide.is_rc();
        is_taken(&frame(&FrameView::Rd(Claimed(Rd { guide, wants_answer, completes }))))
    };
    let is_gd = |guide: Guide| is_taken(&frame(&FrameView::Gd(Claimed(Gd { guide }))));
    let whole = Guide { chunk_len: 64, ..GUIDE };
    for op in WqeOp::ALL {
        let of_z = Guide { op, ..whole };
        let of_f = Guide { slot: Slot::NONE, generation: Generation(0), ..of_z };
        assert_eq!(is_rd(of_z, false), matches!(op, WqeOp::Recv | WqeOp::Read));
        assert_eq!(is_rd(of_f, false), op == WqeOp::Write);
        assert_eq!(is_rd(of_z, true), op == WqeOp::Recv);
        assert_eq!(is_gd(of_z), matches!(op, WqeOp::Send | WqeOp::Write));
        assert_eq!(is_gd(of_f), op == WqeOp::Read);
        assert!(!is_rd(Guide { generation: Generation(1), ..of_f }, false));
        // Between two stateful sides: a RECV by its place, or memory.
        let place = Guide { slot: Slot::RC, mr: MrId(0), mr_offset: 0, ..of_z };
        let memory = Guide { slot: Slot::RC, ..of_f };
        assert_eq!(is_rd(place, false), op == WqeOp::Recv);
        assert_eq!(is_rd(memory, false), op == WqeOp::Write);
        assert_eq!(is_gd(memory), op == WqeOp::Read);
        assert!(!is_gd(place));
        let whole = Guide { wqe_len: place.chunk_offset + 64, ..place };
        assert_eq!(is_rd(whole, true), op == WqeOp::Recv);
        assert!(!is_rd(place, true), "it does not end the message");
        assert!(!is_rd(Guide { mr: MrId(1), ..place }, false));
    }
    assert!(is_rd(GUIDE, false));
    for guide in [
        Guide { chunk_offset: 65, ..GUIDE },
        Guide { chunk_offset: 960, ..GUIDE },
        Guide { chunk_offset: u32::MAX - 63, ..GUIDE },
        Guide { mr_offset: u64::MAX - 999, ..GUIDE },
        Guide { wqe_len: (1 << 30) + 1, ..GUIDE },
        Guide { chunk_len: 4097, wqe_len: 8000, ..GUIDE },
        Guide { chunk_len: 0, ..GUIDE },
        Guide { op: WqeOp::Read, ..GUIDE },
    ] {
        assert!(!is_rd(guide, false), "{guide:?}");
    }
    assert!(!is_gd(Guide { op: WqeOp::Send, chunk_len: 0, chunk_offset: 0, ..GUIDE }));
    assert_eq!(GUIDE.octets_of_mr(), (1 << 40) + 64..(1 << 40) + 164);
}

//= star#III-B-wqep
//= type=test
#[test]
fn wqes_come_out_of_a_wqep_with_their_inline_data() {
    let plain = Wqe { is_inline: false, ..WQE };
    let short = Wqe { len: 3, ..WQE };
    assert_eq!(WQE.oldest_open(), Sequence(u32::MAX), "counted back beyond 0");
    let mut payload = Vec::new();
    for wqe in [WQE, plain, short] {
        let mut octets = [0; WQE_LEN];
        wqe.emit(&mut octets);
        payload.extend(octets);
    }
    payload.extend(0..23);
    let wqep = Wqep { header: HEADER, count: 3, inline_len: 23 };
    let found: Vec<_> = wqep.wqes(&payload).collect();
    let data = &payload[3 * WQE_LEN..];
    assert_eq!(found, [Ok((WQE, &data[..20])), Ok((plain, &[])), Ok((short, &data[20..]))]);
    let found: Vec<_> = wqep.wqes(&payload[..3 * WQE_LEN + 22]).collect();
    assert_eq!(found[2..], [Err(Malformed::Length)], "inline data is missing");
    payload.push(0);
    let found: Vec<_> = wqep.wqes(&payload).collect();
    assert_eq!(found[3..], [Err(Malformed::Length)], "inline data is left over");
    payload[WQE_LEN] = 0xff;
    payload[WQE_LEN + 1..][..3].fill(0xff);
    let found: Vec<_> = wqep.wqes(&payload).collect();
    assert_eq!(found[1..], [Err(Malformed::Field)], "nothing is taken behind what is malformed");
}

//= star#III-B-wqep
//= type=test
#[test]
fn wqes_that_make_no_sense_are_refused() {
    let is_taken = |wqe: Wqe| {
        let mut octets = [0; WQE_LEN];
        wqe.emit(&mut octets);
        Wqe::parse(&octets) == Ok(wqe)
    };
    let with = |op| Wqe { kind: WqeKind::Transfer(op), ..WQE };
    let local = |op| Wqe { remote_mr: MrId(0), remote_offset: 0, ..with(op) };
    let recv = Wqe { immediate: None, is_inline: false, ..local(WqeOp::Recv) };
    let read = Wqe { immediate: None, is_inline: false, ..with(WqeOp::Read) };
    let switch = Wqe {
        kind: WqeKind::Switch,
        open_before: 0,
        mr: MrId(0),
        mr_offset: 0,
        len: 0,
        key: FrameKey::from_bytes([0; 16]),
        ..recv
    };
    for wqe in [WQE, local(WqeOp::Send), recv, read, switch, Wqe { len: 1 << 30, ..recv }] {
        assert!(is_taken(wqe), "{wqe:?}");
    }
    for wqe in [
        with(WqeOp::Send),
        Wqe { immediate: Some(1), ..recv },
        Wqe { is_inline: true, ..read },
        Wqe { slot: Slot::NONE, ..WQE },
        Wqe { len: 65, ..WQE },
        Wqe { len: (1 << 30) + 1, ..recv },
        Wqe { mr_offset: u64::MAX, ..recv },
        Wqe { remote_offset: u64::MAX, ..read },
        Wqe { len: 1, ..switch },
        Wqe { open_before: 1, ..switch },
        Wqe { key: FrameKey::from_bytes([1; 16]), ..switch },
    ] {
        assert!(!is_taken(wqe), "{wqe:?}");
    }
}

//= star#III-B-cqep
//= type=test
#[test]
fn cqes_come_out_of_a_cqep_and_those_that_make_no_sense_do_not() {
    let octets_of = |cqe: &Cqe| {
        let mut octets = [0; CQE_LEN];
        cqe.emit(&mut octets);
        octets
    };
    let of_write = Cqe { is_of_write: true, ..CQE };
    let mut good = vec![CQE, of_write, Cqe::PROBE];
    good.extend(WcStatus::ALL.map(|status| Cqe { status, ..CQE }));
    let taken = Taken { send: Sequence(0x0102_0304), recv: Sequence(0x0506_0708) };
    let mut payload = taken.to_octets().to_vec();
    payload.extend(good.iter().flat_map(octets_of));
    assert_eq!(Cqep::taken(&payload), Some(taken));
    assert!(Cqep::cqes(&payload).eq(good.into_iter().map(Ok)));
    assert_eq!((Cqep::taken(&payload[..7]), Cqep::cqes(&payload[..7]).next()), (None, None));
    for cqe in [
        Cqe { op: WqeOp::Send, ..CQE },
        Cqe { immediate: None, ..of_write },
        Cqe { byte_len: (1 << 30) + 1, ..CQE },
        Cqe { slot: Slot::NONE, ..CQE },
        Cqe { byte_len: 1, ..Cqe::PROBE },
    ] {
        assert_eq!(Cqe::parse(&octets_of(&cqe)), Err(Malformed::Field), "{cqe:?}");
    }
}

//= star#III-B-ea
//= type=test
#[test]
fn acknowledgements_of_both_sides_say_what_was_taken() {
    let mut payload = Vec::new();
    let entries = Answer::ALL.map(|answer| EaEntry { counter: 1 << 60, taken: 5 << 20, answer });
    for entry in entries {
        let mut octets = [0; work::EA_ENTRY_LEN];
        entry.emit(&mut octets);
        payload.extend(octets);
    }
    assert!(EaOfZ::entries(&payload).eq(entries.map(Ok)));
    for (at, value) in [(12, Answer::ALL.len() as u8), (13, 1), (15, 128)] {
        let mut payload = payload.clone();
        payload[at] = value;
        assert_eq!(EaOfZ::entries(&payload).next(), Some(Err(Malformed::Field)));
    }
    let taken = Taken { send: Sequence(0x0102_0304), recv: Sequence(0x0506_0708) };
    assert_eq!(taken.to_octets(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(Taken::from_octets(taken.to_octets()), taken);
    assert_eq!(usize::from(ANSWERED_MAX), packet::FRAMES_MAX);
}

#[test]
fn codes_name_what_they_are_the_codes_of() {
    for code in 0..=u8::MAX {
        assert!(Answer::from_code(code).is_none_or(|it| it as u8 == code));
        assert!(StateKind::from_code(code).is_none_or(|it| it as u8 == code));
    }
    assert!(Answer::ALL.iter().all(|&it| Answer::from_code(it as u8) == Some(it)));
    assert!(StateKind::ALL.iter().all(|&it| StateKind::from_code(it as u8) == Some(it)));
}

#[test]
fn states_without_a_part_and_those_too_short_or_too_long_are_refused() {
    let state = State {
        header: HEADER,
        sender: Side::Stateless,
        kind: StateKind::Initial,
        number: 0,
        part: 0,
        of: 1,
        payload_len: 16,
    };
    let is_taken = |state| is_taken(&frame(&FrameView::State(Claimed(state))));
    assert!(is_taken(state) && is_taken(State { payload_len: 4096, ..state }));
    for state in [
        State { of: 0, ..state },
        State { part: 1, ..state },
        State { payload_len: 15, ..state },
        State { payload_len: 4097, ..state },
    ] {
        assert!(!is_taken(state), "{state:?}");
    }
}

proptest! {
    #[test]
    fn whatever_comes_nothing_panics_and_what_is_taken_is_written_the_same(
        sample in prop::sample::select(samples()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        len in 0..300_usize,
        all in any::<bool>(),
    ) {
        let mut octets = frame(&sample);
        for (at, value) in changes {
            let at = at.index(octets.len().min(80));
            octets[at] = value;
        }
        if !all {
            octets.resize(len, 0x5a);
        }
        let _ = is_taken(&octets);
    }

    #[test]
    fn entries_of_any_octets_are_refused_or_written_the_same(
        mut octets: [[u8; 32]; 2], clear in prop::collection::vec(0..64_usize, 0..64),
    ) {
        for at in clear {
            octets[at / 32][at % 32] = 0;
        }
        let octets: [u8; WQE_LEN] = octets.concat().try_into().unwrap();
        if let Ok(wqe) = Wqe::parse(&octets) {
            let mut again = [0; WQE_LEN];
            wqe.emit(&mut again);
            prop_assert_eq!(again, octets);
        }
        let octets: &[u8; CQE_LEN] = octets.first_chunk().unwrap();
        if let Ok(cqe) = Cqe::parse(octets) {
            let mut again = [0; CQE_LEN];
            cqe.emit(&mut again);
            prop_assert_eq!(&again, octets);
        }
    }
}
