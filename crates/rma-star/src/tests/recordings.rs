//! Recordings of a peer that has died since: they are authentic, and say nothing of now.

use core::time::Duration;
use std::{cell::RefCell, rc::Rc};

use super::{
    deeds::{DEEDS, begin, check, fused},
    pair::{Packet, Pair, Wr},
};
use crate::verbs::{WcStatus, WqeOp};

/// S1: a stateful side with nothing but a RECV learns of its peer's death by asking. Whoever has a
/// recording must not be able to keep it from asking.
#[test]
fn recordings_do_not_keep_a_dead_peer_alive() {
    for is_rc in [false, true] {
        let mut pair = Pair::of(fused(), is_rc);
        let seen: Rc<RefCell<Vec<Packet>>> = Rc::default();
        let record = Rc::clone(&seen);
        pair.fate = Box::new(move |packet| {
            record.borrow_mut().push(packet.clone());
            vec![Duration::from_micros(5)]
        });
        for (number, deed) in (0..).zip(DEEDS) {
            let begun = begin(&mut pair, deed, (number * 4000, 3000), None);
            pair.run_for(Duration::from_millis(100));
            check(&pair, &begun);
        }
        let recv = pair.f.post(WqeOp::Recv, Wr { here: 0, len: 100, ..Wr::default() });
        pair.run_for(Duration::from_millis(100));
        // It is gone, and all that it has ever said is said again and again.
        pair.fate = Box::new(|_| vec![]);
        let told: Vec<_> = seen.take().into_iter().filter(|it| !it.to_z || is_rc).collect();
        assert!(told.len() > 10, "there are recordings: {}", told.len());
        let ends_within = fused().ends_within().as_secs() + 1;
        for _ in 0..ends_within {
            told.iter().cloned().for_each(|packet| pair.replay(packet));
            pair.run_for(Duration::from_secs(1));
        }
        assert_eq!(pair.f.status(recv), Some(WcStatus::WrFlushErr), "RC: {is_rc}");
    }
}
