//! The cost of a frame to the stateful side before and after its connection is known: always about
//! the same, however much is under way.

use core::time::Duration;
use std::{cell::RefCell, rc::Rc};

use super::{
    deeds::{faithful, fused},
    pair::{Packet, Pair, Wr},
};
use crate::{config::StarConfigBuilder, counters::StarDrop, verbs::WqeOp};

/// SENDs of F under way, an RD each.
const MESSAGES: u32 = 200;

/// The most looks that a frame costs which answers nothing.
const LOOKS_MAX: usize = 4;

/// A pair of which F has so many RDs under way. What Z answers is lost, and recorded.
fn under_way(settings: StarConfigBuilder) -> (Pair, Vec<Packet>) {
    let mut pair = Pair::new(settings);
    let answers = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..MESSAGES {
        pair.z.post(WqeOp::Recv, Wr { len: 64, ..Wr::default() });
    }
    pair.run_for(Duration::from_millis(1));
    let seen = Rc::clone(&answers);
    pair.fate = Box::new(move |packet| {
        if packet.to_z {
            return vec![Duration::from_micros(5)];
        }
        seen.borrow_mut().push(packet.clone());
        vec![]
    });
    // The last one alone: it has an RDA in any case, and not a share in an EA.
    for count in [MESSAGES - 1, 1] {
        for _ in 0..count {
            pair.f.post(WqeOp::Send, Wr { len: 64, ..Wr::default() });
        }
        pair.run_for(Duration::from_millis(1));
    }
    assert!(pair.f_host.stateful.in_use().1 >= MESSAGES as usize);
    let answers = answers.take();
    (pair, answers)
}

/// How many looks a frame costs.
fn looks(pair: &mut Pair, packet: Packet) -> usize {
    let _ = pair.f_host.stateful.looks();
    let packets = vec![packet];
    pair.deliver(packets);
    pair.f_host.stateful.looks()
}

fn of_type(packets: &[Packet], frame_type: u8) -> Packet {
    packets.iter().find(|it| it.frame_type() == frame_type).expect("there is one").clone()
}

/// An attacker who knows the names of a connection, and no key, can send an RDA with any number.
#[test]
fn a_forged_answer_is_not_looked_for_among_all_that_is_under_way() {
    for settings in [fused(), faithful()] {
        let (mut pair, answers) = under_way(settings);
        let rda = of_type(&answers, 0x25);
        for number in (0..1 << 18).step_by(997) {
            let mut forged = rda.clone();
            forged.bytes[40..44].copy_from_slice(&u32::to_be_bytes(number));
            forged.bytes[63] ^= 1;
            let looks = looks(&mut pair, forged);
            assert!(looks <= LOOKS_MAX, "{looks} for the number {number}");
        }
        assert_eq!(pair.f_host.stateful.in_use().1, MESSAGES as usize);
        // The right one still is one.
        let dropped = pair.f_host.counters.drops(StarDrop::LateOrUnsolicited);
        let _ = looks(&mut pair, rda);
        assert_eq!(pair.f_host.stateful.in_use().1, MESSAGES as usize - 1);
        assert_eq!(pair.f_host.counters.drops(StarDrop::LateOrUnsolicited), dropped);
    }
}

/// Z may say in an EA what it likes.
#[test]
fn the_entries_of_an_ea_are_not_looked_for_among_all_that_is_under_way() {
    let (mut pair, answers) = under_way(fused());
    let ea = of_type(&answers, 0x23);
    let entries = usize::from(ea.bytes[36]);
    assert!(entries > 1, "one EA for several");
    // It answers its frames, and then none.
    let first = looks(&mut pair, ea.clone());
    let left = pair.f_host.stateful.in_use().1;
    assert_eq!(left, MESSAGES as usize - entries);
    let again = looks(&mut pair, ea);
    assert!(again <= LOOKS_MAX * entries, "{again} for {entries} that are not under way");
    assert!(first <= 16 * entries, "{first} for {entries} that are");
    assert_eq!(pair.f_host.stateful.in_use().1, left);
}
