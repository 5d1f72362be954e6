//! Frames about lost things: memory that was taken back, used-up values of the message counter, and
//! time in which the host stood still.

use core::time::Duration;
use std::sync::Arc;

use rma_core::crypto::{CounterBlock, IvCounter};

use super::{
    deeds::{DEEDS, begin, check, fused},
    pair::{MEMORY, Pair, Wr},
};
use crate::{
    counters::StarEvent,
    mr_table::Access,
    verbs::{WcStatus, WqeOp},
};

const MS: Duration = Duration::from_millis(1);
const LEN: u32 = 200_000;

/// Rules are not pushed: what takes memory back is Z's table, and F hears of it by its next frame.
#[test]
fn memory_that_is_taken_back_is_touched_no_more_and_the_peer_hears_of_it_at_once() {
    for is_window in [false, true] {
        for op in [WqeOp::Write, WqeOp::Read] {
            let mut pair = Pair::new(fused());
            let (pd, span, memory) = (pair.z.pd, 0..MEMORY as u64, Arc::clone(&pair.z.memory));
            let rights = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE;
            let mr = pair.star.reg_mr(0, pd, Arc::clone(&memory), span.clone(), rights).unwrap();
            let shared = match is_window {
                true => pair.star.bind_mw(0, mr, span.clone(), rights).unwrap(),
                false => mr,
            };
            let wr = Wr { len: LEN, remote: Some(shared), ..Wr::default() };
            pair.f.fill(0, &[0xaa; LEN as usize]);
            let posted = pair.f.post(op, wr);
            pair.run_for(Duration::from_micros(60));
            assert_eq!(pair.f.status(posted), None, "it is under way");
            let _ = pair.star.dereg_mr(0, shared).unwrap();
            // Another has the row at once: it has another name.
            let next = match is_window {
                true => pair.star.bind_mw(0, mr, span, rights).unwrap(),
                false => pair.star.reg_mr(0, pd, memory, span, rights).unwrap(),
            };
            assert_ne!(next, shared);
            let before = pair.z.bytes(0, MEMORY);
            let has_moved = before[..64] == [0xaa; 64];
            assert_eq!(has_moved, op == WqeOp::Write, "some of it came before");
            pair.run_for(40 * MS);
            assert_eq!(pair.f.status(posted), Some(WcStatus::RemAccessErr), "{op:?} {is_window}");
            assert!(pair.z.bytes(0, MEMORY) == before, "nothing came after");
            assert!(pair.star.counters().events(StarEvent::Denied) > 0);
        }
    }
}

/// A counter that can hand out nothing, as when what it has reserved cannot be written.
fn empty(at: u64) -> IvCounter {
    let mut counter = IvCounter::new(CounterBlock::new(at, at + 1));
    let _ = counter.next();
    counter
}

#[test]
fn a_host_without_message_counters_is_silent_and_goes_on_when_it_has_some() {
    for which in [0, 1] {
        for deed in DEEDS {
            let mut pair = Pair::new(fused());
            *pair.counters()[which] = empty(1 << 50);
            let begun = begin(&mut pair, deed, (64, 3000), None);
            pair.run_for(100 * MS);
            assert!(!(pair.z.open.is_empty() && pair.f.open.is_empty()), "{deed:?} {which}");
            *pair.counters()[which] = IvCounter::new(CounterBlock::new(1 << 51, 1 << 52));
            pair.run_for(500 * MS);
            check(&pair, &begun);
        }
    }
}

/// S1: not even a full disk keeps what is posted from ending.
#[test]
fn work_of_a_stateful_side_without_message_counters_ends() {
    for is_rc in [false, true] {
        let mut pair = Pair::of(fused(), is_rc);
        *pair.counters()[1] = empty(1 << 50);
        let wr = Wr { len: 10, ..Wr::default() };
        let posted = [WqeOp::Recv, WqeOp::Send].map(|op| pair.f.post(op, wr));
        pair.run_for(2 * fused().probe_interval + 100 * MS);
        let ended = posted.map(|slot| pair.f.status(slot));
        assert!(ended.iter().all(|it| it.is_some_and(|it| it != WcStatus::Success)), "{ended:?}");
    }
}

/// The clock of a host that was paused, as virtual machines are, is behind all that its peers know
/// of it. What they send seems to be of too far ahead, so nothing of it has effect, and they are
/// told that; after half an hour not even its tags are right.
#[test]
fn a_connection_to_a_host_whose_clock_stood_still_ends() {
    for (deed, seconds) in DEEDS.into_iter().flat_map(|deed| [(deed, 10), (deed, 3600)]) {
        let mut pair = Pair::new(fused());
        let begun = begin(&mut pair, deed, (64, 3000), None);
        pair.run_for(100 * MS);
        check(&pair, &begun);
        let time = Duration::from_secs(seconds);
        (pair.now, pair.z_ahead) = (pair.now + time, pair.z_ahead - time);
        let begun = begin(&mut pair, deed, (8000, 3000), None);
        let before = pair.z.bytes(0, MEMORY);
        pair.run_for(fused().ends_within());
        if let Some(slot) = begun.f_slot {
            let status = pair.f.status(slot);
            assert!(status.is_some_and(|it| it != WcStatus::Success), "{deed:?}: {status:?}");
        }
        assert!(pair.z.bytes(0, MEMORY) == before, "{deed:?} after {seconds} s has landed");
        let is_told = pair.star.counters().events(StarEvent::Expired) > 0;
        assert_eq!(is_told, seconds == 10, "{deed:?} after {seconds} s");
    }
}
