//! A WQEP and its completions have one answer: a CQEP, which says all that an EA says, and which
//! Z's next work requests acknowledge.

use core::time::Duration;
use std::{cell::Cell, rc::Rc};

use super::{
    deeds::{Deed, begin, check, faithful, fused},
    pair::{Packet, Pair, Wr},
};
use crate::{
    config::StarConfigBuilder,
    counters::StarEvent,
    verbs::{WcStatus, WqeOp},
};

const MS: Duration = Duration::from_millis(1);
const LATENCY: Duration = Duration::from_micros(5);

/// A pair of which F knows Z's clock, so that what is inline need not be asked for.
fn warm(settings: StarConfigBuilder) -> Pair {
    let mut pair = Pair::new(settings);
    let begun = begin(&mut pair, Deed::FSend, (0, 32), None);
    pair.run_to_the_end(10 * MS);
    check(&pair, &begun);
    pair.run_for(100 * MS);
    pair.sent.clear();
    pair
}

/// Z sends a message that is inline, to a RECV of F. Returns the slot.
fn send(pair: &mut Pair) -> u32 {
    pair.f.post(WqeOp::Recv, Wr { len: 64, ..Wr::default() });
    pair.z.post(WqeOp::Send, Wr { len: 32, inline: Some(7), ..Wr::default() })
}

fn count(pair: &Pair, frame_type: u8) -> u32 {
    pair.sent.get(&frame_type).copied().unwrap_or(0)
}

/// WQEPs, CQEPs and EAs of both sides.
fn counts(pair: &Pair) -> [u32; 3] {
    [0x21, 0x22, 0x23].map(|frame_type| count(pair, frame_type))
}

fn is_cqep(packet: &Packet) -> bool {
    packet.frame_type() == 0x22
}

fn wants_answer(packet: &Packet) -> bool {
    packet.bytes[2] & 0x20 != 0
}

//= star#ours-one-answer
//= type=test
#[test]
fn a_send_that_is_done_at_once_takes_two_frames_and_the_last_of_many_two_more() {
    let mut pair = warm(fused());
    for sent in 1..=20 {
        let slot = send(&mut pair);
        pair.run_for(MS / 10);
        assert_eq!(pair.z.status(slot), Some(WcStatus::Success));
        assert_eq!(counts(&pair), [sent, sent, 0]);
        assert_eq!(pair.f_host.stateful.in_use(), (1, 1), "that of the last");
    }
    assert_eq!(pair.f_host.counters.events(StarEvent::Retransmit), 0);
    pair.run_for(100 * MS);
    assert_eq!(counts(&pair), [20, 21, 1], "it asks when Z says nothing by itself");
    assert_eq!(pair.f_host.stateful.in_use(), (0, 0));

    let mut pair = warm(faithful());
    for sent in 1..=5 {
        send(&mut pair);
        pair.run_for(MS / 10);
        assert_eq!(counts(&pair), [sent, sent, 2 * sent], "the paper's sequence");
    }
}

#[test]
fn whichever_cqep_is_lost_or_comes_late_each_send_is_told_once() {
    for number in 0..6 {
        for delays in [vec![], vec![3 * MS], vec![LATENCY, 3 * MS]] {
            let mut pair = warm(fused());
            let (mut cqeps, late) = (0, delays.clone());
            pair.fate = Box::new(move |packet| {
                cqeps += u32::from(is_cqep(packet));
                let is_this = is_cqep(packet) && cqeps - 1 == number;
                if is_this { late.clone() } else { vec![LATENCY] }
            });
            let slots: Vec<_> = (0..6)
                .map(|_| {
                    let slot = send(&mut pair);
                    pair.run_for(MS / 10);
                    slot
                })
                .collect();
            pair.run_for(200 * MS);
            let is_ok = |&slot: &u32| pair.z.status(slot) == Some(WcStatus::Success);
            assert!(slots.iter().all(is_ok), "CQEP {number}, {delays:?}");
            assert_eq!(pair.f_host.stateful.in_use(), (0, 0));
        }
    }
}

#[test]
fn an_ea_goes_where_no_cqep_can() {
    let mut pair = warm(fused());
    let (is_lossy, quiet) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
    let (lossy, quiets) = (Rc::clone(&is_lossy), Rc::clone(&quiet));
    pair.fate = Box::new(move |packet| {
        quiets.set(quiets.get() + u32::from(is_cqep(packet) && !wants_answer(packet)));
        if is_cqep(packet) && lossy.get() { vec![] } else { vec![LATENCY] }
    });
    let slots: Vec<_> = (0..40)
        .map(|_| {
            let slot = send(&mut pair);
            pair.run_for(MS / 50);
            slot
        })
        .collect();
    assert_eq!(counts(&pair), [40, 32, 8], "each WQEP has its answer at once");
    assert_eq!(quiet.get(), 16, "the others want an answer");
    is_lossy.set(false);
    pair.run_for(500 * MS);
    assert!(slots.iter().all(|&slot| pair.z.status(slot) == Some(WcStatus::Success)));
    assert_eq!((quiet.get(), pair.f_host.stateful.in_use()), (16, (0, 0)));
}

#[test]
fn a_cqep_without_answer_is_of_sends_that_went_well() {
    let mut pair = warm(fused());
    pair.fate = Box::new(|packet| {
        assert!(!is_cqep(packet) || wants_answer(packet));
        vec![LATENCY]
    });
    // A RECV's, whose SEND is complete when Z has it; and one that fails.
    pair.z.post(WqeOp::Recv, Wr { len: 64, ..Wr::default() });
    let own = Wr { len: 32, immediate: Some(5), ..Wr::default() };
    let own = pair.f.post(WqeOp::Send, own);
    pair.run_for(MS);
    assert_eq!(pair.f.status(own), Some(WcStatus::Success));
    pair.f.post(WqeOp::Recv, Wr { len: 16, ..Wr::default() });
    let long = pair.z.post(WqeOp::Send, Wr { len: 32, inline: Some(7), ..Wr::default() });
    pair.run_for(MS);
    assert!(pair.z.status(long).is_some_and(|status| status != WcStatus::Success));
    assert_eq!(count(&pair, 0x22), 2);
}
