//! A hostile Z that has the keys: whatever it tells, the stateful side goes on, and ends.

use core::time::Duration;

use proptest::prelude::*;
use rma_core::{
    backend::{Transmit, TxFrame},
    crypto::{CounterBlock, EngineId, IvCounter},
    limits::TAG_LEN,
    op::ClassOfService,
};

use super::{
    deeds::{DEEDS, begin, fused},
    pair::{Packet, Pair, QP, address},
};
use crate::{
    clock::ZTime,
    config::STATEFUL_PORT,
    counters::StarDrop,
    keys::FrameKey,
    names::{ConnectionName, Era, Generation, MrId, Nonce, Qpn, Sequence, Side, Slot},
    portal::{Post, Report},
    sealer::Sealer,
    tables::z_time,
    verbs::WqeOp,
    wire::{
        Answer, EaEntry, EaOfZ, Header, Initial, KeyPhase, Rule, State, StateKind, Wqe, WqeKind,
        Wqep,
        entries::WQE_LEN,
        state::STATE_HEADER_LEN,
        told::{INITIAL_LEN, RULE_LEN},
        work::{EA_ENTRY_LEN, WORK_HEADER_LEN},
    },
};

/// A lie of a hostile Z.
#[derive(Clone, Debug)]
enum Lie {
    Wqes(Vec<(WqeOp, [u32; 6], Option<u32>, bool)>),
    Answers(Vec<(u64, u32, Answer)>),
    Rule(u8, u32, u64, Option<[u8; 16]>),
    Initial(u32, u16),
    /// Any octets behind any type.
    Octets(u8, Vec<u8>),
}

fn lie() -> impl Strategy<Value = Lie> {
    let op = prop::sample::select(WqeOp::ALL.to_vec());
    let number = prop_oneof![0_u32..4, any::<u32>()];
    let wqe = (op, prop::array::uniform6(number), any::<Option<u32>>(), any::<bool>());
    let answer = prop::sample::select(Answer::ALL.to_vec());
    prop_oneof![
        4 => prop::collection::vec(wqe, 1..6).prop_map(Lie::Wqes),
        4 => prop::collection::vec((0_u64..100, any::<u32>(), answer), 1..6).prop_map(Lie::Answers),
        1 => (0_u8..3, any::<u32>(), any::<u64>(), any::<Option<[u8; 16]>>())
            .prop_map(|(number, mr, len, key)| Lie::Rule(number, mr, len, key)),
        1 => (1_u32.., any::<u16>()).prop_map(|(valid, len)| Lie::Initial(valid, len)),
        1 => (0x20_u8..0x2b, prop::collection::vec(any::<u8>(), 52..200))
            .prop_map(|(kind, octets)| Lie::Octets(kind, octets)),
    ]
}

fn wrong() -> impl Strategy<Value = i32> {
    prop_oneof![9 => Just(0), 1 => -(1 << 30)..1 << 30]
}

/// Seals a frame of Z with header `octets` and this payload.
fn sealed<const LEN: usize>(
    pair: &Pair,
    sealer: &mut Sealer,
    header: &Header,
    (octets, payload): ([u8; LEN], &[u8]),
) -> Packet {
    let mut bytes = [&octets[..], payload, &[0; TAG_LEN]].concat();
    let len = bytes.len();
    let mut frame = [TxFrame::new(&mut bytes)];
    let (ends, class) = ([address(1), address(2)], ClassOfService::Latency);
    frame[0].transmit = Some(Transmit::new(ends, STATEFUL_PORT, class, len));
    let key = FrameKey::from_bytes(pair.key);
    let time = header.time.widen(z_time(pair.z_now()));
    sealer.push(&key, header.iv(Side::Stateless), &octets, time);
    sealer.seal(&mut frame);
    Packet { to_z: false, is_v6: false, port: STATEFUL_PORT, bytes }
}

/// The frame that tells a lie, sealed by a clock that is wrong by so many microseconds.
fn told(pair: &Pair, sealer: &mut Sealer, lie: Lie, wrong: i32) -> Packet {
    let qpn = Qpn::new(0, QP).unwrap();
    let (nonce, era) = (Nonce(9), Era(0));
    let name = ConnectionName { pd: pair.z.pd, qpn_z: qpn, qpn_f: qpn, nonce, era };
    let time = ZTime(z_time(pair.z_now()).0.saturating_add_signed(wrong.into()));
    let header = sealer.header(name, KeyPhase::Even, time);
    let mut work_octets = [0; WORK_HEADER_LEN];
    let mut state_octets = [0; STATE_HEADER_LEN];
    let mut state = |kind, number, len| {
        let (sender, payload_len) = (Side::Stateless, len as u16);
        State { header, sender, kind, number, part: 0, of: 1, payload_len }.emit(&mut state_octets);
        state_octets
    };
    match lie {
        Lie::Wqes(wqes) => {
            let (mut entries, mut inlines) = (Vec::new(), Vec::new());
            for (op, [slot, generation, sequence, mr, len, offset], immediate, inline) in &wqes {
                let (sequence, len) = (sequence % 5, &(len % 5000));
                let gives = matches!(op, WqeOp::Send | WqeOp::Write);
                let is_remote = matches!(op, WqeOp::Read | WqeOp::Write);
                let is_inline = *inline && gives && *len <= 64;
                let wqe = Wqe {
                    slot: Slot(*slot),
                    generation: Generation(*generation),
                    sequence: Sequence(sequence),
                    open_before: *generation as u16,
                    kind: WqeKind::Transfer(*op),
                    mr: MrId(*mr),
                    mr_offset: u64::from(*offset),
                    len: *len,
                    remote_mr: if is_remote { pair.f.mr } else { MrId(0) },
                    remote_offset: if is_remote { u64::from(*offset) } else { 0 },
                    immediate: immediate.filter(|_| gives),
                    is_inline,
                    key: FrameKey::from_bytes([3; 16]),
                };
                let mut entry = [0; WQE_LEN];
                wqe.emit(&mut entry);
                entries.extend_from_slice(&entry);
                inlines.extend(vec![0xee; wqe.inline_len()]);
            }
            let (count, inline_len) = (wqes.len() as u8, inlines.len() as u16);
            Wqep { header, count, inline_len }.emit(&mut work_octets);
            sealed(pair, sealer, &header, (work_octets, &[entries, inlines].concat()))
        }
        Lie::Answers(answers) => {
            let entries: Vec<_> = answers
                .iter()
                .flat_map(|&(counter, taken, answer)| {
                    let mut entry = [0; EA_ENTRY_LEN];
                    EaEntry { counter: (1 << 40) + counter, taken, answer }.emit(&mut entry);
                    entry
                })
                .collect();
            EaOfZ { header, count: answers.len() as u8, delay_micros: 0 }.emit(&mut work_octets);
            sealed(pair, sealer, &header, (work_octets, &entries))
        }
        Lie::Rule(number, mr, len, key) => {
            let key = key.map(FrameKey::from_bytes);
            // The MR that is asked for, or another.
            let mr = if mr % 2 == 0 { pair.z.mr } else { MrId(mr) };
            let rule = Rule { mr, len, write: key, read: key };
            let octets = state(StateKind::Rules, number, RULE_LEN);
            sealed(pair, sealer, &header, (octets, &rule.to_octets()))
        }
        Lie::Initial(valid_micros, packet_len_max) => {
            let initial = Initial { valid_micros, packet_len_max };
            let octets = state(StateKind::Initial, 1, INITIAL_LEN);
            sealed(pair, sealer, &header, (octets, &initial.to_octets()))
        }
        Lie::Octets(kind, mut octets) => {
            (octets[0], octets[1]) = (1, kind);
            Packet { to_z: false, is_v6: false, port: STATEFUL_PORT, bytes: octets }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_z_that_lies_ends_no_more_than_its_connection(
        lies in prop::collection::vec((lie(), 0_u64..30, wrong()), 1..60),
        first in 0_usize..6,
    ) {
        let mut pair = Pair::new(fused());
        let block = CounterBlock::new(1 << 50, 1 << 51);
        let counter = IvCounter::new(block);
        let mut sealer = Sealer::new(rma_crypto::fastest(), EngineId::default(), counter);
        let is_on_time = lies.iter().all(|(.., wrong)| *wrong == 0);
        for (number, (lie, wait, wrong)) in (0_u64..).zip(lies) {
            if number % 5 == 0 {
                let deed = DEEDS[(first + number as usize / 5) % DEEDS.len()];
                let _ = begin(&mut pair, deed, (1000 + number * 3000, 2000), None);
            }
            let packet = told(&pair, &mut sealer, lie, wrong);
            pair.replay(packet);
            pair.run_for(Duration::from_micros(wait));
        }
        let unauthenticated = pair.f_host.counters.drops(StarDrop::Unauthenticated);
        prop_assert!(!is_on_time || unauthenticated == 0, "its frames are authentic");
        pair.f.command(Post::Close { qp: QP });
        pair.run_for(Duration::from_millis(50));
        prop_assert_eq!(pair.f.told.last(), Some(&Report::Closed { qp: QP }));
        prop_assert!(pair.f.open.is_empty(), "{:?}", pair.f.open);
        prop_assert_eq!(pair.f_host.stateful.in_use(), (0, 0));
    }
}
