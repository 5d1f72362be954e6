//! Terms that nobody honest has made: any bytes, or terms of any kind with any numbers and grants.

use rma_channel::{
    OpenError, SendError, Sender, Terms,
    read_ring::{self, ReaderConfig},
    read_slot,
    send_recv::{bufferless, shared},
    shared_ring,
    write_slot::reserve_slot,
};
use rma_contract::hosts::Hosts as _;
use rma_core::{gate::Gate, op::OpType};
use rma_sim::net::frame::NodeId;

use super::world::World;
use crate::script::Script;

/// The name of the channel that ends of many senders or receivers join.
const NAME: u64 = 7;

/// The node that joins; the next is the one whose terms it should get.
const US: NodeId = NodeId(0);
const THEM: NodeId = NodeId(1);

/// Any bytes are no terms, or terms that are these bytes; and whoever joins with some is refused,
/// or is an end that does no harm.
pub(super) fn run(script: &mut Script<'_>) {
    let bytes = match script.number() % 3 {
        0 => script.take(usize::MAX).to_vec(),
        _ => told(script),
    };
    let Ok(terms) = Terms::from_bytes(&bytes) else { return };
    assert_eq!(terms.to_bytes(), bytes, "other terms than were told");
    join(&terms);
}

/// A number that may be a length, a count, or anything.
fn number(script: &mut Script<'_>) -> u64 {
    match script.number() % 4 {
        0 => script.number() as u64,
        1 => 1 << (script.number() % 64),
        2 => (1 << (script.number() % 64)) - 1,
        _ => script.wide() << (script.number() % 48),
    }
}

/// Terms as bytes, which make some sense.
fn told(script: &mut Script<'_>) -> Vec<u8> {
    let world = World::new(2);
    let [us, them] = [US, THEM].map(|node| world.peer(node));
    let (kind, side, count) = (script.number() as u8, script.number() as u8 % 3, script.number());
    let count = count as u8 % 12;
    let mut bytes = b"RMAchan1".to_vec();
    bytes.extend([kind % 24, side, count]);
    for number in [NAME, number(script), number(script), number(script)] {
        bytes.extend(number.to_le_bytes());
    }
    for _ in 0..count {
        let op_type = OpType::Read as u8 + script.number() as u8 % 9;
        bytes.extend(them.address.to_octets());
        bytes.extend(us.address.to_octets());
        bytes.extend((script.number() as u32).to_le_bytes());
        bytes.extend(number(script).to_le_bytes());
        bytes.extend(us.pid.0.to_le_bytes());
        bytes.push(op_type);
        bytes.extend([script.number() as u8; 16]);
    }
    bytes
}

/// Every end that takes a channel as its terms say it is joins with these.
fn join(terms: &Terms) {
    send(|host| shared::Sender::join(host, terms, 2));
    send(|host| bufferless::Sender::join(host, terms, 2));
    send(|host| reserve_slot::Sender::join(host, terms, 2));
    send(|host| shared_ring::immediate::Sender::join(host, terms));
    send(|host| shared_ring::with_zeroing::Sender::join(host, terms));
    let mut world = World::new(2);
    let config = ReaderConfig::new().with(|it| it.name = NAME);
    let from = world.peer(THEM);
    let host = &*world.gate(US);
    // No end of theirs has to bear the result.
    drop(read_ring::detached_bell::Receiver::join(host, config, terms));
    drop(read_ring::inlined_bell::Receiver::join(host, config, terms));
    drop(read_ring::notify_receiver::Receiver::join(host, config, from, terms));
    drop(read_slot::notify_receiver::Receiver::join(host, config, from, terms));
}

/// A sender that has joined sends what it is told that it may.
fn send<S: Sender>(join: impl FnOnce(&dyn Gate) -> Result<S, OpenError>) {
    let mut world = World::new(2);
    let Ok(mut sender) = join(&*world.gate(US)) else { return };
    let longest = sender.len_max();
    for len in [1, 8, longest.min(1 << 16)] {
        let (link, now) = world.link(US);
        let sent = sender.send(link, now, &vec![1; len as usize]);
        if let Err(SendError::Len { max, .. }) = sent {
            assert_eq!(max, longest, "as it says of itself");
        }
        for _ in 0..world.poll(0) {
            world.apply(0, 0);
        }
        let (link, now) = world.link(US);
        // None of their regions is there.
        let _ = sender.poll(link, now);
    }
}
