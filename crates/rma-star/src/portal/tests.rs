//! Words, lines and ends, each against any bits at all.

use std::sync::Arc;

use proptest::prelude::*;
use rma_shm::{Line, Mapping};

use super::{
    Guard, GuardState, Post, Posted, QpRecord, QpState, QpWord, Report, StarPort, StarPortal,
    StarPortalMemory, Verdict, ends::portal,
};
use crate::{
    handover::{HANDOVER_LEN, Handover},
    names::{Era, Sequence, Taken},
    verbs::{WcStatus, WqeOp},
};

fn op() -> impl Strategy<Value = WqeOp> {
    prop::sample::select(WqeOp::ALL.to_vec())
}

fn status() -> impl Strategy<Value = WcStatus> {
    prop::sample::select(WcStatus::ALL.to_vec())
}

prop_compose! {
    fn posted()(
        (slot, generation, qp, sequence) in any::<(u32, u32, u32, u32)>(),
        op in op(),
        (again, is_moved, immediate) in any::<(bool, bool, Option<u32>)>(),
        (inline_len, open_before) in any::<(u8, u16)>(),
        (mr, offset, length, remote_mr, remote_offset) in any::<(u32, u64, u32, u32, u64)>(),
    ) -> Posted {
        Posted {
            slot, generation, qp, sequence, open_before, op, again, is_moved, immediate, inline_len,
            mr, offset, length, remote_mr, remote_offset,
        }
    }
}

fn handover() -> impl Strategy<Value = Handover> {
    let octets = (any::<[u8; 32]>(), any::<[u8; 24]>());
    octets.prop_map(|(head, tail)| {
        let mut octets = [0; HANDOVER_LEN];
        octets[..32].copy_from_slice(&head);
        octets[32..].copy_from_slice(&tail);
        Handover::from_octets(&octets)
    })
}

fn post() -> impl Strategy<Value = Post> {
    prop_oneof![
        posted().prop_map(Post::Wqe),
        any::<(u32, bool)>().prop_map(|(qp, is_stateful)| Post::Open { qp, is_stateful }),
        any::<(u32, bool)>().prop_map(|(qp, connects)| Post::OpenRc { qp, connects }),
        any::<u32>().prop_map(|qp| Post::Introduce { qp }),
        any::<u32>().prop_map(|qp| Post::Close { qp }),
        any::<(u32, bool)>().prop_map(|(qp, is_automatic)| Post::Switch { qp, is_automatic }),
        any::<(u32, u16, bool)>().prop_map(|(qp, number, agrees)| Post::Answer {
            qp,
            number: Era(number),
            agrees
        }),
        (any::<u32>(), handover(), 0_u32..1 << 24).prop_map(|(qp, handover, outstanding)| {
            Post::TakeOver { qp, handover, outstanding }
        }),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let completed = (any::<[u32; 5]>(), op(), status(), any::<(Option<u32>, bool)>()).prop_map(
        |([slot, generation, qp, sequence, byte_len], op, status, (immediate, is_of_write))| {
            Report::Completed {
                slot,
                generation,
                qp,
                sequence,
                op,
                status,
                byte_len,
                immediate,
                is_of_write,
            }
        },
    );
    prop_oneof![
        completed,
        (any::<u32>(), status(), any::<[u8; 16]>(), any::<u64>(), any::<u32>()).prop_map(
            |(qp, status, key, clock, valid_micros)| {
                Report::Opened { qp, status, key, clock, valid_micros }
            }
        ),
        any::<u32>().prop_map(|qp| Report::Ready { qp }),
        (any::<u32>(), status()).prop_map(|(qp, status)| Report::Failed { qp, status }),
        any::<u32>().prop_map(|qp| Report::Closed { qp }),
        any::<(u32, u16, bool)>().prop_map(|(qp, number, is_automatic)| {
            Report::SwitchAsked { qp, number: Era(number), is_automatic }
        }),
        (any::<u32>(), handover()).prop_map(|(qp, handover)| Report::HandedOver { qp, handover }),
        (any::<u32>(), status()).prop_map(|(qp, status)| Report::TakenOver { qp, status }),
        any::<(u32, u16)>().prop_map(|(qp, era)| Report::Committed { qp, era: Era(era) }),
        any::<u32>().prop_map(|qp| Report::NotSwitched { qp }),
    ]
}

proptest! {
    #[test]
    fn lines_say_what_was_put_into_them(post in post(), report in report()) {
        prop_assert_eq!(Post::from_line(&post.to_line()), Some(post));
        prop_assert_eq!(Report::from_line(&report.to_line()), Some(report));
    }

    #[test]
    fn any_line_is_a_post_or_none(words in any::<[u64; 8]>()) {
        let line = Line(words);
        if let Some(post) = Post::from_line(&line) {
            prop_assert_eq!(Post::from_line(&post.to_line()), Some(post));
            prop_assert_eq!(Post::has_second(&line), Post::has_second(&post.to_line()));
        }
    }

    #[test]
    fn any_word_is_a_guard_a_qp_word_and_a_record(
        bits in any::<u64>(),
        words in any::<[u64; 8]>(),
    ) {
        let guard = Guard::from_bits(bits);
        prop_assert_eq!(Guard::from_bits(guard.to_bits()), guard);
        let word = QpWord::from_bits(bits);
        prop_assert_eq!(QpWord::from_bits(word.to_bits()), word);
        let record = QpRecord::from_words(words);
        prop_assert_eq!(QpRecord::from_words(record.to_words()), record);
    }

    #[test]
    fn taken_places_never_go_back(
        now in any::<(u32, u32)>(),
        ahead in (0..1_u32 << 31, 0..1_u32 << 31),
    ) {
        let now = Taken { send: Sequence(now.0), recv: Sequence(now.1) };
        let add = |place: Sequence, ahead| Sequence(place.0.wrapping_add(ahead));
        let next =
            Taken { send: add(now.send, ahead.0), recv: add(now.recv, ahead.1) };
        prop_assert_eq!(now.later(next), next);
        prop_assert_eq!(next.later(now), next);
    }
}

/// The table of section 6 of `docs/STAR-WIRE.md`, case by case.
#[test]
fn a_frame_has_effect_only_while_its_slot_and_its_connection_are_open() {
    let open = QpWord { nonce: 7, era: 1, heard: 9, state: QpState::Open };
    let closed = QpWord { state: QpState::Closed, ..open };
    let guard = |state| Guard::new(3, 5, 7, state);
    let of = |state, word, generation, qp, nonce, era| {
        Verdict::of(guard(state), word, generation, qp, nonce, era)
    };
    use GuardState::{Closed, Free, Open};
    // This use of the slot, of this QP.
    assert_eq!(of(Open, open, 3, 5, 7, 1), Verdict::Open);
    assert_eq!(of(Open, closed, 3, 5, 7, 1), Verdict::Gone);
    assert_eq!(of(Closed, open, 3, 5, 7, 1), Verdict::Done);
    assert_eq!(of(Closed, closed, 3, 5, 7, 1), Verdict::Done);
    // The next connection of the QP says nothing about what the one before left open.
    let next = QpWord { nonce: 8, ..open };
    assert_eq!(of(Open, next, 3, 5, 8, 1), Verdict::Done);
    // Another connection of the same QP, or another era of this one.
    assert_eq!(of(Open, open, 3, 5, 8, 1), Verdict::Gone);
    assert_eq!(of(Open, open, 3, 5, 7, 2), Verdict::Gone);
    // Another use of the slot, the same use of another QP, or none.
    for state in [Free, Open, Closed] {
        assert_eq!(of(state, open, 4, 5, 7, 1), Verdict::Done);
        assert_eq!(of(state, open, 3, 6, 7, 1), Verdict::Done);
        assert_eq!(of(state, closed, 4, 5, 7, 1), Verdict::Gone);
        assert_eq!(of(state, open, 4, 5, 8, 1), Verdict::Gone);
    }
    assert_eq!(of(Free, open, 3, 5, 7, 1), Verdict::Done);
}

fn ends(slots: u32, qps: u32) -> (StarPortal, StarPort) {
    portal(slots, qps).expect("a small portal")
}

const WQE: Posted = Posted {
    slot: 1,
    generation: 2,
    qp: 0,
    sequence: 0,
    open_before: 0,
    op: WqeOp::Send,
    again: false,
    is_moved: false,
    immediate: None,
    inline_len: 0,
    mr: 4,
    offset: 0,
    length: 10,
    remote_mr: 0,
    remote_offset: 0,
};

#[test]
fn posts_arrive_in_order_and_with_their_inline_data() {
    let (mut application, mut engine) = ends(4, 1);
    let inline = Posted { inline_len: 10, ..WQE };
    application.post(&Post::Wqe(WQE), None).unwrap();
    application.post(&Post::Wqe(inline), Some(&Line([5; 8]))).unwrap();
    application.post(&Post::Close { qp: 0 }, None).unwrap();
    for expected in [
        (Post::Wqe(WQE), None),
        (Post::Wqe(inline), Some(Line([5; 8]))),
        (Post::Close { qp: 0 }, None),
    ] {
        assert_eq!((engine.next_post(), engine.next_post()), (Some(expected), Some(expected)));
        assert!(!engine.is_idle());
        engine.done();
    }
    assert!(engine.next_post().is_none() && engine.is_idle());
}

#[test]
fn all_slots_and_qps_at_once_have_room_both_ways() {
    let (slots, qps) = (5, 3);
    let (mut application, mut engine) = ends(slots, qps);
    for slot in 0..slots {
        let inline = Posted { slot, inline_len: 64, ..WQE };
        application.post(&Post::Wqe(inline), Some(&Line::default())).unwrap();
    }
    for qp in 0..qps {
        application.post(&Post::Close { qp }, None).unwrap();
    }
    assert!(engine.has_room_for((slots + 4 * qps) as usize));
}

#[test]
fn words_and_records_are_each_ones_own() {
    let (mut application, mut engine) = ends(3, 2);
    let memory = engine.memory().clone();
    let word = QpWord { nonce: 1, era: 2, heard: 255, state: QpState::Open };
    let guard = Guard::new(9, 1, 5, GuardState::Open);
    let record = QpRecord::from_words([1, 2, 3, 4, 5, 6, 0, 0]);
    engine.set_qp_word(1, word);
    engine.set_guard(2, guard);
    application.set_record(1, &record);
    let taken = Taken { send: Sequence(4), recv: Sequence(0) };
    engine.note_taken(1, taken);
    assert_eq!(memory.qp_word(1), QpWord { heard: 0, ..word });
    assert_eq!((memory.qp_word(0), memory.taken(0)), (QpWord::CLOSED, Taken::default()));
    assert_eq!(memory.taken(1), taken);
    assert_eq!(
        [0, 1, 2].map(|slot| memory.guard(slot)),
        [Some(Guard::FREE), Some(Guard::FREE), Some(guard)]
    );
    assert_eq!(memory.record(1), Some(record));
    // A use that does not exist.
    engine.set_guard(3, guard);
    engine.set_qp_word(2, word);
    assert_eq!((memory.guard(3), memory.record(2)), (None, None));
    assert_eq!((memory.qp_word(2), memory.qp_word(u32::MAX)), (QpWord::CLOSED, QpWord::CLOSED));
    assert_eq!(memory.record(0), Some(QpRecord::from_words([0; 8])));
}

#[test]
fn another_process_joins_the_same_portal_and_no_other() {
    let mapping = Arc::new(Mapping::heap(StarPortalMemory::footprint(8, 2).unwrap()));
    let here = StarPortalMemory::format(&mapping, 8, 2).unwrap();
    let there = StarPortalMemory::join(&mapping, 8, 2).unwrap();
    StarPortal::new(there, None).post(&Post::Introduce { qp: 1 }, None).unwrap();
    assert_eq!(StarPort::new(here).next_post(), Some((Post::Introduce { qp: 1 }, None)));
    assert!(StarPortalMemory::join(&mapping, 8, 3).is_err());
    assert!(StarPortalMemory::format(&mapping, 800, 2).is_err());
}

#[test]
fn the_limits_are_what_rings_have_room_for_and_more_is_an_error() {
    use crate::limits::{QPS_MAX, SLOTS_MAX};
    let footprint = StarPortalMemory::footprint;
    assert!(footprint(SLOTS_MAX, 1).is_ok() && footprint(1, QPS_MAX).is_ok());
    let mapping = Arc::new(Mapping::heap(4096));
    for (slots, qps) in
        [(SLOTS_MAX + 1, 1), (1, QPS_MAX + 1), (SLOTS_MAX, QPS_MAX), (u32::MAX, u32::MAX)]
    {
        assert!(footprint(slots, qps).is_err());
        assert!(StarPortalMemory::format(&mapping, slots, qps).is_err());
        assert!(StarPortalMemory::join(&mapping, slots, qps).is_err());
    }
}
