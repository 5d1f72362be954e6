//! A hostile peer that is stateful as this host is, and has the keys: it touches what it was given,
//! and nothing else, and ends no more than its connection (S5).

use core::time::Duration;
use std::{cell::Cell, rc::Rc};

use proptest::prelude::*;
use rma_core::{
    backend::{Transmit, TxFrame},
    crypto::{CounterBlock, EngineId, IvCounter},
    limits::TAG_LEN,
    op::ClassOfService,
};

use super::{
    deeds::fused,
    pair::{Packet, Pair, QP, Wr, address},
};
use crate::{
    clock::ZTime,
    config::STATEFUL_PORT,
    counters::StarDrop,
    keys::{Binding, FrameKey},
    mr_table::Access,
    names::{ConnectionName, Era, Generation, MrId, Nonce, PdId, Qpn, Sequence, Side, Slot, Taken},
    portal::{Post, Report},
    sealer::Sealer,
    tables::z_time,
    verbs::{WcStatus, WqeOp},
    wire::{
        Answer, Cqe, Cqep, EaEntry, EaOfF, EaOfZ, Gd, Guide, Header, KeyPhase, Rd,
        data::{GDA_HEADER_LEN, GUIDE_HEADER_LEN},
        entries::CQE_LEN,
        work::{EA_ENTRY_LEN, WORK_HEADER_LEN},
    },
};

/// The places of the RECVs, and the span that peers may write into.
const RECVS: [(u64, u32); 3] = [(1_000, 100), (3_000, 2_000), (9_000, 0)];
const SHARED: core::ops::Range<u64> = 100_000..101_000;

/// A lie of a hostile peer.
#[derive(Clone, Debug)]
enum Lie {
    /// Message or WRITE, place, MR, offset, chunk offset, octets, octets behind them, C, number.
    Data(bool, u32, usize, u64, u32, u32, u32, bool, u32),
    Ask(usize, u64, u32),
    Cqes(Vec<(bool, u32, u32, Option<u32>, WcStatus)>),
    Posted(u32),
    Answers(Vec<(u64, u32, Answer)>),
}

fn lie() -> impl Strategy<Value = Lie> {
    let place = || prop_oneof![9 => 0_u32..5, 1 => any::<u32>()];
    let offset = || prop_oneof![0_u64..3_000, Just(1 << 40)];
    let status = prop::sample::select(WcStatus::ALL.to_vec());
    let status = prop_oneof![9 => Just(WcStatus::Success), 1 => status];
    let cqe = (prop::bool::weighted(0.9), place(), 0_u32..3_000, any::<Option<u32>>(), status);
    let answer = prop::sample::select(Answer::ALL.to_vec());
    let more = prop_oneof![Just(0_u32), 0_u32..100];
    prop_oneof![
        8 => (any::<bool>(), place(), 0_usize..5, offset(), 0_u32..4, 0_u32..1_300, more,
            any::<bool>(), place())
            .prop_map(|(write, place, mr, at, chunk, len, more, completes, number)| {
                Lie::Data(write, place, mr, at, chunk * 64, len, more, completes, number)
            }),
        2 => (0_usize..5, offset(), 1_u32..1_300).prop_map(|(mr, at, len)| Lie::Ask(mr, at, len)),
        2 => prop::collection::vec(cqe, 1..5).prop_map(Lie::Cqes),
        1 => place().prop_map(Lie::Posted),
        2 => prop::collection::vec((0_u64..40, any::<u32>(), answer), 1..5)
            .prop_map(Lie::Answers),
    ]
}

struct Hostile {
    sealer: Sealer,
    /// The MRs that it names: one of RECVs, one that is shared, one of another domain, none.
    mrs: [MrId; 5],
    number: u32,
}

impl Hostile {
    /// The names of both halves: the QPs of both hosts have the same number.
    fn name(pair: &Pair) -> ConnectionName {
        let qpn = Qpn::new(0, QP).unwrap();
        ConnectionName { pd: pair.z.pd, qpn_z: qpn, qpn_f: qpn, nonce: Nonce(9), era: Era(0) }
    }

    fn seal<const LEN: usize>(
        &mut self,
        pair: &Pair,
        (sender, time): (Side, ZTime),
        header: &Header,
        (octets, payload): ([u8; LEN], &[u8]),
    ) -> Packet {
        let mut bytes = [&octets[..], payload, &[0; TAG_LEN]].concat();
        let len = bytes.len();
        let mut frame = [TxFrame::new(&mut bytes)];
        let (ends, class) = ([address(1), address(2)], ClassOfService::Latency);
        frame[0].transmit = Some(Transmit::new(ends, STATEFUL_PORT, class, len));
        // It asks in the one half and answers in the other.
        let [f, z] = if sender == Side::Stateful { ends } else { [ends[1], ends[0]] };
        let half = Binding { connection: Self::name(pair), f, z };
        let key = FrameKey::from_bytes(pair.key).of_half(self.sealer.aead, &half);
        self.sealer.push(&key, header.iv(sender), &octets, time);
        self.sealer.seal(&mut frame);
        Packet { to_z: false, is_v6: false, port: STATEFUL_PORT, bytes }
    }

    /// The frame that tells a lie, if there is such a frame.
    fn told(&mut self, pair: &Pair, lie: &Lie) -> Packet {
        let sender = if let Lie::Answers(_) = lie { Side::Stateless } else { Side::Stateful };
        let expiry = ZTime(z_time(pair.now).0 + 10_000);
        let time = if sender == Side::Stateful { expiry } else { z_time(pair.z_now()) };
        let header = self.sealer.header(Self::name(pair), KeyPhase::Even, time);
        let guide = Guide {
            header,
            op: WqeOp::Read,
            slot: Slot::RC,
            generation: Generation(0),
            mr: MrId(0),
            mr_offset: 0,
            wqe_len: 0,
            chunk_offset: 0,
            chunk_len: 0,
            sequence: Sequence(0),
            copy: 0,
        };
        let how = (sender, time);
        let mut work = [0; WORK_HEADER_LEN];
        let mut data = [0; GUIDE_HEADER_LEN];
        match lie {
            &Lie::Data(is_write, place, mr, offset, chunk_offset, len, more, completes, number) => {
                self.number += 1;
                let wqe_len = chunk_offset + len + more;
                let at = Guide {
                    wqe_len,
                    chunk_offset,
                    chunk_len: len as u16,
                    // Mostly the next.
                    sequence: Sequence(if number < 5 { self.number } else { number }),
                    ..guide
                };
                let guide = if is_write {
                    let mr = self.mrs[mr];
                    Guide { op: WqeOp::Write, mr, mr_offset: offset, ..at }
                } else {
                    Guide { op: WqeOp::Recv, generation: Generation(place), ..at }
                };
                let completes = completes && !is_write;
                Rd { guide, wants_answer: false, completes }.emit(&mut data);
                self.seal(pair, how, &header, (data, &vec![0xee; len as usize]))
            }
            &Lie::Ask(mr, mr_offset, len) => {
                let (mr, chunk_len) = (self.mrs[mr], len as u16);
                Gd { guide: Guide { mr, mr_offset, wqe_len: len, chunk_len, ..guide } }
                    .emit(&mut data);
                self.seal(pair, how, &header, (data, &[]))
            }
            Lie::Cqes(cqes) => {
                let entries = cqes.iter().flat_map(|&(is_rc, place, len, immediate, status)| {
                    let slot = if is_rc { Slot::RC } else { Slot(place) };
                    let cqe = Cqe {
                        slot,
                        generation: Generation(0),
                        sequence: Sequence(place),
                        byte_len: len,
                        status,
                        op: WqeOp::Recv,
                        immediate,
                        is_of_write: immediate.is_some_and(|it| it % 2 == 1),
                    };
                    let mut entry = [0; CQE_LEN];
                    cqe.emit(&mut entry);
                    entry
                });
                let taken = Taken { send: Sequence(0), recv: Sequence(0) };
                let payload: Vec<u8> = taken.to_octets().into_iter().chain(entries).collect();
                let count = cqes.len() as u8;
                Cqep { header, count, wants_answer: true, state_number: 0, state_parts: 0 }
                    .emit(&mut work);
                self.seal(pair, how, &header, (work, &payload))
            }
            &Lie::Posted(recv) => {
                EaOfF { header, state_number: 0, state_parts: 0 }.emit(&mut work);
                let taken = Taken { send: Sequence(0), recv: Sequence(recv) };
                self.seal(pair, how, &header, (work, &taken.to_octets()))
            }
            Lie::Answers(answers) => {
                let entries: Vec<u8> = answers
                    .iter()
                    .flat_map(|&(counter, taken, answer)| {
                        let mut entry = [0; EA_ENTRY_LEN];
                        EaEntry { counter: (1 << 40) + counter, taken, answer }.emit(&mut entry);
                        entry
                    })
                    .collect();
                EaOfZ { header, count: answers.len() as u8, delay_micros: 0 }.emit(&mut work);
                self.seal(pair, how, &header, (work, &entries))
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_stateful_peer_that_lies_touches_what_it_was_given_and_no_more(
        lies in prop::collection::vec((lie(), 0_u64..30), 1..60),
    ) {
        let mut pair = Pair::of(fused(), true);
        let (memory, pd) = (pair.f.memory.clone(), pair.f.pd);
        let mrs = &mut pair.f_host.mrs;
        let mut register = |pd, span, access| {
            mrs.register(pd, memory.clone(), span, access).unwrap()
        };
        let local = register(pd, 0..1 << 20, Access::LOCAL_WRITE);
        let shared = register(pd, SHARED, Access::REMOTE_WRITE);
        let strange = PdId(pd.0 ^ 1);
        let others = register(strange, 0..1 << 20, Access::REMOTE_WRITE | Access::REMOTE_READ);
        pair.f.mr = local;
        let recvs = RECVS.map(|(here, len)| {
            pair.f.post(WqeOp::Recv, Wr { here, len, ..Wr::default() })
        });
        pair.f.fill(0, &vec![0x11; 1 << 20]);
        let gave_data = Rc::new(Cell::new(false));
        let gives = Rc::clone(&gave_data);
        pair.fate = Box::new(move |packet| {
            let is_data = packet.bytes.len() > GDA_HEADER_LEN + TAG_LEN;
            gives.set(gives.get() || (packet.frame_type() == 0x27 && packet.to_z && is_data));
            vec![Duration::from_micros(5)]
        });
        let counter = IvCounter::new(CounterBlock::new(1 << 50, 1 << 51));
        let mut hostile = Hostile {
            sealer: Sealer::new(rma_crypto::fastest(), EngineId::default(), counter),
            mrs: [local, shared, shared, others, MrId(7)],
            number: 0,
        };
        let mut is_filled = [false; RECVS.len()];
        for (number, (lie, wait)) in lies.iter().enumerate() {
            if number % 7 == 0 {
                let len = 10 + number as u32;
                pair.f.post(WqeOp::Send, Wr { here: 200_000, len, ..Wr::default() });
            }
            let packet = hostile.told(&pair, lie);
            pair.replay(packet);
            pair.run_for(Duration::from_micros(*wait));
            for (place, recv) in recvs.iter().enumerate() {
                if pair.f.status(*recv).is_some() && !is_filled[place] {
                    is_filled[place] = true;
                    let (at, len) = RECVS[place];
                    pair.f.fill(at, &vec![0x11; len as usize]);
                }
            }
        }
        pair.run_for(Duration::from_micros(50));
        prop_assert_eq!(pair.f_host.counters.drops(StarDrop::Unauthenticated), 0);
        prop_assert!(!gave_data.get(), "nothing may be read");
        let now = pair.f.bytes(0, 1 << 20);
        for (at, &byte) in (0_u64..).zip(&now) {
            let is_open = |place: usize| {
                let (start, len) = RECVS[place];
                !is_filled[place] && (start..start + u64::from(len)).contains(&at)
            };
            let may_change = SHARED.contains(&at) || (0..RECVS.len()).any(is_open);
            prop_assert!(byte == 0x11 || may_change, "{}", at);
        }
        pair.f.command(Post::Close { qp: QP });
        pair.run_for(Duration::from_millis(50));
        prop_assert_eq!(pair.f.told.last(), Some(&Report::Closed { qp: QP }));
        prop_assert!(pair.f.open.is_empty(), "{:?}", pair.f.open);
        prop_assert_eq!(pair.f_host.stateful.in_use(), (0, 0));
    }
}
