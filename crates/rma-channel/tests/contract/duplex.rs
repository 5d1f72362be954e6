//! Duplex channels: requests and answers tell no tail by themselves. (That messages come once and
//! in order, whatever goes wrong, is the contract's, of which they are rows.)

use core::time::Duration;
use std::sync::Arc;

use rma_channel::{
    Claims, DuplexReceiver, DuplexSender, Half, Outgoing, Peer, Receiver, SendError, SendRegion,
    SendState, Sender, Terms, duplex,
    ring::{Malformed, RingLen},
    ring_buffer::{RingConfig, with_zeroing, without_zeroing},
};
use rma_core::region::Permissions;
use rma_shm::Region;
use rma_sim::{hosts::options::NetworkOptions, net::frame::NodeId};

use rma_contract::{
    hosts::{Driven as _, Hosts as _},
    simulated::World,
};

/// A sender and a receiver of one host.
type Side = (Box<dyn Sender>, Box<dyn Receiver>);

/// One side's two ends, of channels to and from the other.
fn connect<S, R>(sender: Half<S>, receiver: Half<R>, [to, from]: [&Terms; 2]) -> (S, R)
where
    S: Sender,
    R: Receiver,
{
    (sender.connect(to).unwrap(), receiver.connect(from).unwrap())
}

/// An eighth of it is a message of 64 bytes, whose tail is told at once.
fn config(peer: Peer) -> RingConfig {
    RingConfig::with_peer(peer)
        .with(|it| (it.len, it.len_max) = (RingLen::new(512).unwrap(), 64 + 8))
}

/// Two hosts with a ring in each direction.
macro_rules! pair {
    ($of:ident, $world:ident) => {{
        let [here, there] = [0, 1].map(|node| config($world.peer(NodeId(node))));
        let (near, far) = (NodeId(0), NodeId(1));
        let sender = $of::Sender::open(&*$world.gate(near), there).unwrap();
        let receiver = $of::Receiver::open(&*$world.gate(near), there).unwrap();
        let other_sender = $of::Sender::open(&*$world.gate(far), here).unwrap();
        let other_receiver = $of::Receiver::open(&*$world.gate(far), here).unwrap();
        let ours = [sender.terms().clone(), receiver.terms().clone()];
        let theirs = [other_receiver.terms().clone(), other_sender.terms().clone()];
        [
            connect(sender, receiver, [&theirs[0], &theirs[1]]),
            connect(other_sender, other_receiver, [&ours[1], &ours[0]]),
        ]
    }};
}

/// The side of a node looks: sends `message`, once it may, in answer to one that has come or
/// because it `begins`. Returns whether it has.
fn tend(world: &mut World, node: NodeId, side: &mut Side, begins: bool) -> bool {
    let (sender, receiver) = side;
    let (link, now) = world.link(node);
    link.poll(now);
    sender.poll(link, now).unwrap();
    let mut sends = begins;
    if let Some(claim) = receiver.claim().unwrap() {
        assert_eq!(claim.len(), 64);
        receiver.free(claim);
        sends = true;
    }
    if sends {
        sender.send(link, now, &[7; 64]).unwrap();
    }
    receiver.poll(link, now).unwrap();
    link.poll(now);
    world.take_commands(node);
    sends
}

/// How many requests are answered.
const TRIPS: u64 = 50;

/// How many ops two sides issue until the last answer is issued.
fn ops(world: &mut World, sides: &mut [Side; 2]) -> u64 {
    let issued = |world: &World| -> u64 {
        [0, 1].map(|node| world.network.counts(NodeId(node)).total().issued).iter().sum()
    };
    let before = issued(world);
    let mut answers = 0;
    tend(world, NodeId(0), &mut sides[0], true);
    while answers < TRIPS {
        world.step(None);
        // The last answer is answered by nothing.
        answers += u64::from(tend(world, NodeId(1), &mut sides[1], false));
        if answers < TRIPS {
            tend(world, NodeId(0), &mut sides[0], false);
        }
    }
    issued(world) - before
}

fn boxed<S: Sender + 'static, R: Receiver + 'static>((sender, receiver): (S, R)) -> Side {
    (Box::new(sender), Box::new(receiver))
}

//= channels#6-acknowledgements-ride
//= type=test
#[test]
fn a_request_and_its_answer_are_two_ops_and_not_four() {
    // Of the last request and of its answer no tail has been told by then.
    for (rides, expected) in [(true, 2 * TRIPS), (false, 4 * TRIPS - 2)] {
        let mut world = World::new(NetworkOptions::exact(2));
        let mut sides = if rides {
            pair!(with_zeroing, world).map(|(sender, receiver)| boxed(duplex(sender, receiver)))
        } else {
            pair!(with_zeroing, world).map(boxed)
        };
        let ops = ops(&mut world, &mut sides);
        assert_eq!(ops, expected, "with riding: {rides}");
        let mut world = World::new(NetworkOptions::exact(2));
        let mut sides = if rides {
            pair!(without_zeroing, world).map(|(sender, receiver)| boxed(duplex(sender, receiver)))
        } else {
            pair!(without_zeroing, world).map(boxed)
        };
        let ops = self::ops(&mut world, &mut sides);
        let is_so = if rides { ops == expected } else { ops.abs_diff(expected) < 3 };
        assert!(is_so, "{ops} with riding: {rides}");
    }
}

type Zeroing = (DuplexSender<with_zeroing::Sender>, DuplexReceiver<with_zeroing::Receiver>);

/// Both look, for so long.
fn pass(world: &mut World, sides: &mut [Zeroing; 2], length: Duration) -> Result<(), SendError> {
    let end = world.now() + length;
    while world.now() < end {
        world.step(Some(world.now() + Duration::from_micros(1)));
        for (node, (sender, receiver)) in sides.iter_mut().enumerate() {
            let node = NodeId(node as u16);
            let (link, now) = world.link(node);
            link.poll(now);
            sender.poll(link, now)?;
            receiver.poll(link, now).unwrap();
            link.poll(now);
            world.take_commands(node);
        }
    }
    Ok(())
}

//= channels#6-acknowledgements-ride
//= type=test
#[test]
fn a_tail_that_rides_to_who_takes_no_messages_is_told_by_itself() {
    let mut world = World::new(NetworkOptions::exact(2));
    let mut sides = pair!(with_zeroing, world).map(|(sender, receiver)| duplex(sender, receiver));
    let (link, now) = world.link(NodeId(0));
    let asked = sides[0].0.send(link, now, &[1; 64]).unwrap();
    pass(&mut world, &mut sides, Duration::from_micros(20)).unwrap();
    let message = sides[1].1.receive().unwrap().expect("it has come");
    drop(message);
    let (link, now) = world.link(NodeId(1));
    sides[1].0.send(link, now, &[2; 64]).unwrap();
    // The asker does not look at the answer.
    pass(&mut world, &mut sides, Duration::from_micros(500)).unwrap();
    assert_eq!(sides[0].0.test(asked), SendState::Accepted);
    pass(&mut world, &mut sides, Duration::from_millis(2)).unwrap();
    assert_eq!(sides[0].0.test(asked), SendState::Processed);
}

#[test]
fn a_message_sent_from_where_it_lies_carries_a_tail_and_is_not_copied() {
    let mut world = World::new(NetworkOptions::exact(2));
    let mut sides = pair!(with_zeroing, world).map(|(sender, receiver)| duplex(sender, receiver));
    let host = world.gate(NodeId(0));
    let (memory, key) = (Arc::new(Region::new(128).unwrap()), host.key().unwrap());
    let region = host.register(memory, key, Permissions::NONE, None).unwrap();
    drop(host);
    region.write(16, b"a message").unwrap();
    assert_eq!(sides[0].0.beside(), (16, 8));
    let (link, now) = world.link(NodeId(0));
    let refused = sides[0].0.send_region(link, now, &region, 8..17);
    assert!(matches!(refused, Err(SendError::Place { .. })), "{refused:?}");
    sides[0].0.send_region(link, now, &region, 16..25).unwrap();
    pass(&mut world, &mut sides, Duration::from_micros(20)).unwrap();
    let message = sides[1].1.receive().unwrap().expect("it has come");
    assert_eq!(message.to_vec(), b"a message");
    drop(message);
    assert_eq!(world.link(NodeId(0)).0.copied_bytes(), 0);
}

#[test]
fn a_tail_that_cannot_be_is_refused_and_one_that_is_old_changes_nothing() {
    for told in [0, 1, 128, 129, u64::MAX / 2, 1 << 63] {
        let mut world = World::new(NetworkOptions::exact(2));
        let [(mut liar, _), other] = pair!(with_zeroing, world);
        let mut other = duplex(other.0, other.1);
        // It has sent one message, of 128 bytes with all that is beside it.
        let (link, now) = world.link(NodeId(1));
        other.0.send(link, now, &[1; 64]).unwrap();
        let (link, now) = world.link(NodeId(0));
        liar.send(link, now, &[&u64::to_le_bytes(told)[..], b"lies"].concat()).unwrap();
        for _ in 0..100 {
            world.step(Some(world.now() + Duration::from_micros(1)));
            for node in [NodeId(0), NodeId(1)] {
                let (link, now) = world.link(node);
                link.poll(now);
                world.take_commands(node);
            }
        }
        assert_eq!(other.1.receive().unwrap().expect("it has come").to_vec(), b"lies");
        let (link, now) = world.link(NodeId(1));
        let polled = other.0.poll(link, now);
        match told {
            0 | 1 | 128 => assert_eq!(polled, Ok(()), "{told}"),
            _ => assert!(
                matches!(polled, Err(SendError::Malformed(Malformed::Tail { .. }))),
                "{told}: {polled:?}"
            ),
        }
    }
}

#[test]
fn a_message_without_room_for_a_tail_is_refused_for_good() {
    let mut world = World::new(NetworkOptions::exact(2));
    let [(mut liar, _), other] = pair!(with_zeroing, world);
    let mut other = duplex(other.0, other.1);
    let (link, now) = world.link(NodeId(0));
    liar.send(link, now, &[0; 8]).unwrap();
    for _ in 0..100 {
        world.step(Some(world.now() + Duration::from_micros(1)));
        for node in [NodeId(0), NodeId(1)] {
            let (link, now) = world.link(node);
            link.poll(now);
            world.take_commands(node);
        }
    }
    for _ in 0..2 {
        let refused = other.1.claim().unwrap_err();
        assert_eq!(refused, Malformed::Ride { len: 8 }.into());
    }
}
