//! Both ends of a receive queue, and what an application writes that breaks the rules.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use proptest::prelude::*;
use rma_shm::{LayoutError, Line, Mapping, Region};

use super::*;
use crate::{
    addr::Pid,
    op::OpType,
    region::{NicTag, RegionId, RegisteredRegion},
    time::Instant,
};

fn ends(receives: u16, buffer_len: u32) -> (ReceiveQueue, ReceiveQueuePort, ReceiveQueueMemory) {
    let layout = ReceiveQueueLayout::new(receives, buffer_len).unwrap();
    let rings = ReceiveQueueMemory::heap(layout);
    let memory = Arc::new(Region::new(layout.memory_len()).unwrap());
    let region = RegisteredRegion::new(RegionId::from_bits(0x0102_0304), memory, NicTag(0));
    (rings.clone().into_application(region), rings.clone().into_port(None), rings)
}

fn event(receive: Receive, len: u32) -> Event {
    Event {
        op_type: OpType::Send,
        receive,
        len,
        immediate: 0x1112_1314_1516_1718,
        initiator: "2001:db8::7".parse().unwrap(),
        pid: Pid(0x2122_2324),
        region: RegionId::from_bits(0x0102_0304),
        region_offset: 0x3132_3334_3536_3738,
        at: Instant::from_nanos(99),
    }
}

#[test]
fn sizes_that_no_queue_can_have_are_refused_with_their_values() {
    for receives in [0, RECEIVES_MAX + 1] {
        let error = ReceiveQueueLayout::new(receives, 64).unwrap_err();
        assert_eq!(error, ReceiveQueueError::Receives { receives });
    }
    let error = ReceiveQueueLayout::new(1, 4097).unwrap_err();
    assert_eq!(error, ReceiveQueueError::BufferLen { buffer_len: 4097 });
    let layout = ReceiveQueueLayout::new(RECEIVES_MAX, 4096).unwrap();
    assert_eq!(layout.memory_len(), usize::from(RECEIVES_MAX) * 4096);
    assert_eq!(ReceiveQueueLayout::new(3, 9).unwrap().memory_len(), 3 * 16, "each begins a word");
    assert_eq!(ReceiveQueueLayout::new(3, 0).unwrap().memory_len(), 1);
}

#[test]
fn the_layout_and_the_lines_are_what_both_sides_rely_on() {
    // A change to one of these counts up the version.
    let layout = ReceiveQueueLayout::new(5, 64).unwrap();
    let ring = 384 + 8 * 64;
    assert_eq!(ReceiveQueueMemory::footprint(layout), 128 + 2 * ring);
    let mapping = Arc::new(Mapping::heap(ReceiveQueueMemory::footprint(layout)));
    let rings = ReceiveQueueMemory::format(&mapping, layout).unwrap();
    rings.posts().set_tail(3);
    rings.events().set_tail(4);
    let word = |at: usize| mapping.words()[at / 8].load(core::sync::atomic::Ordering::Relaxed);
    assert_eq!((word(0).to_ne_bytes(), word(8), word(16)), (*b"1RMArecv", 1, 8));
    assert_eq!((word(128 + 128), word(128 + ring + 128)), (3, 4));
    let line = event(Receive(0x4142), 0x5152_5354).to_line();
    let octets = event(Receive(0), 0).initiator.to_octets();
    let half = |at| u64::from_le_bytes(octets[at..at + 8].try_into().unwrap());
    let head = 0x5152_5354_4142_0004;
    let who = 0x0102_0304_2122_2324;
    let region_offset = 0x3132_3334_3536_3738;
    let expected = [head, 0x1112_1314_1516_1718, half(0), half(8), who, region_offset, 99, 0];
    assert_eq!(line.0, expected);
    assert_eq!(Event::from_line(&line), Some(event(Receive(0x4142), 0x5152_5354)));
    for op_type in [0, 1, 2, 3, 7, 8, 9, 255] {
        assert_eq!(Event::from_line(&Line([op_type, 0, 0, 0, 0, 0, 0, 0])), None, "{op_type}");
    }
}

#[test]
fn a_mapping_that_holds_no_such_queue_is_refused() {
    let layout = |receives| ReceiveQueueLayout::new(receives, 64).unwrap();
    let mapping = Arc::new(Mapping::heap(ReceiveQueueMemory::footprint(layout(4))));
    let refused = |receives| ReceiveQueueMemory::join(&mapping, layout(receives)).unwrap_err();
    assert!(matches!(refused(4), LayoutError::Kind { .. }));
    assert!(matches!(refused(5), LayoutError::TooShort { .. }));
    ReceiveQueueMemory::format(&mapping, layout(4)).unwrap();
    assert!(matches!(refused(2), LayoutError::Size { found: 4, wanted: 2, .. }));
    assert!(ReceiveQueueMemory::join(&mapping, layout(3)).is_ok(), "it has as many entries");
}

#[test]
fn an_application_posts_each_receive_once_until_its_event_and_reads_what_came() {
    let (mut queue, mut port, _) = ends(2, 16);
    let absent = ReceiveQueueError::NoSuchReceive { number: 2, receives: 2 };
    assert_eq!(queue.post(Receive(2)), Err(absent));
    queue.post(Receive(1)).unwrap();
    assert_eq!(queue.post(Receive(1)), Err(ReceiveQueueError::PostedAlready { number: 1 }));
    let receive = port.take().unwrap();
    assert_eq!(queue.post(Receive(1)), Err(ReceiveQueueError::PostedAlready { number: 1 }));
    queue.region().write(queue.layout().offset_of(receive), b"twelve bytes").unwrap();
    port.publish(&event(receive, 12));
    let event = queue.poll().unwrap();
    let mut message = [0xff; 13];
    let short = ReceiveQueueError::TooShort { len: 12, room: 11 };
    assert_eq!(queue.read(&event, &mut message[..11]), Err(short));
    assert_eq!(message, [0xff; 13]);
    queue.read(&event, &mut message).unwrap();
    assert_eq!(&message, b"twelve bytes\xff");
    let notified = Event { op_type: OpType::Notify, ..event };
    let none = ReceiveQueueError::NoMessage { op_type: OpType::Notify };
    assert_eq!(queue.read(&notified, &mut message), Err(none));
    queue.post(Receive(1)).unwrap();
}

/// Of an engine that is broken, or of memory that is.
#[test]
fn events_that_cannot_be_are_passed_over() {
    let (mut queue, mut port, rings) = ends(2, 16);
    queue.post(Receive(0)).unwrap();
    assert_eq!(port.take(), Some(Receive(0)));
    let mut events = rings.events().clone().into_producer();
    events.push(&event(Receive(1), 1).to_line()).unwrap();
    events.push(&Line::ZERO).unwrap();
    assert_eq!(queue.poll(), None, "it was not posted, and the other is no event");
    events.push(&event(Receive(9), 1).to_line()).unwrap();
    events.push(&event(Receive(0), 17).to_line()).unwrap();
    let longer = queue.poll().unwrap();
    assert!(queue.read(&longer, &mut [0; 16]).is_err());
    assert_eq!((queue.posted(), queue.impossible()), (0, 3));
}

/// An engine that leaves the ring of posts alone, and tells of receives that lie in it.
#[test]
fn an_event_of_a_receive_that_the_engine_has_not_taken_is_passed_over() {
    let (mut queue, mut port, rings) = ends(4, 16);
    queue.post_all();
    let mut events = rings.events().clone().into_producer();
    events.push(&event(Receive(0), 1).to_line()).unwrap();
    assert_eq!((queue.poll(), queue.impossible()), (None, 1));
    assert_eq!(queue.post(Receive(0)), Err(ReceiveQueueError::PostedAlready { number: 0 }));
    // The engine is whole again.
    assert!(port.take().is_some());
    events.push(&event(Receive(0), 1).to_line()).unwrap();
    assert_eq!(queue.poll().map(|event| event.receive), Some(Receive(0)));
    queue.post(Receive(0)).unwrap();
    assert_eq!((queue.posted(), queue.impossible()), (4, 1));
}

/// An engine that takes receives, and then takes its index back.
#[test]
fn a_receive_that_a_broken_engine_leaves_no_room_for_is_refused() {
    let (mut queue, mut port, rings) = ends(2, 16);
    for _ in 0..2 {
        queue.post_all();
        for _ in 0..2 {
            let receive = port.take().unwrap();
            port.publish(&event(receive, 1));
            assert!(queue.poll().is_some());
        }
    }
    rings.posts().set_head(2);
    assert_eq!(queue.post(Receive(1)), Err(ReceiveQueueError::ReceivesNotTaken { number: 1 }));
    queue.post_all();
    assert_eq!(queue.posted(), 0, "nothing was posted");
    rings.posts().set_head(4);
    queue.post(Receive(1)).unwrap();
}

/// An event at the engine's end.
#[derive(Clone, Copy, Debug)]
enum Step {
    Post(u64),
    Take,
    PutBack(u8),
    Publish(u8),
    Read,
    /// The index of the reader of events, as an application may write it.
    Head(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8_u64).prop_map(Step::Post),
        1 => any::<u64>().prop_map(Step::Post),
        5 => Just(Step::Take),
        2 => any::<u8>().prop_map(Step::PutBack),
        4 => any::<u8>().prop_map(Step::Publish),
        3 => Just(Step::Read),
        1 => any::<u32>().prop_map(Step::Head),
    ]
}

proptest! {
    /// A receive is with the application, at hand, or bound, and nowhere twice; what is published
    /// has room; whatever the application does.
    #[test]
    fn no_receive_is_lost_and_no_event_is_without_room(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        const RECEIVES: u64 = 6;
        let (_, mut port, rings) = ends(RECEIVES as u16, 8);
        let mut posts = rings.posts().clone().into_producer();
        let mut events = rings.events().clone().into_consumer();
        let (mut bound, mut posted, mut in_ring) =
            (Vec::new(), BTreeSet::new(), VecDeque::new());
        let (mut published, mut refused, mut is_hostile) = (0, 0, false);
        for step in steps {
            match step {
                Step::Post(number) => {
                    if posts.push(&Line([number, 0, 0, 0, 0, 0, 0, 0])).is_ok() {
                        in_ring.push_back(number);
                    }
                }
                Step::Take => {
                    let is_right = |it: &u64, posted: &BTreeSet<u64>| {
                        *it < RECEIVES && !posted.contains(it)
                    };
                    match port.take() {
                        Some(receive) => {
                            let number = u64::from(receive.0);
                            while !posted.contains(&number) {
                                let next = in_ring.pop_front().expect("it was posted");
                                if is_right(&next, &posted) {
                                    posted.insert(next);
                                } else {
                                    refused += 1;
                                }
                            }
                            prop_assert!(!bound.contains(&receive), "bound twice");
                            bound.push(receive);
                        }
                        None if posted.len() == bound.len() && !is_hostile => {
                            // None is at hand: all that are in the ring make no sense, or events
                            // have no room.
                            let full = bound.len() + port.watch().unread >= 8;
                            let any = in_ring.iter().any(|it| is_right(it, &posted));
                            prop_assert!(full || !any);
                            if !full {
                                refused += in_ring.len() as u64;
                                in_ring.clear();
                            }
                        }
                        None => (),
                    }
                }
                Step::PutBack(which) if !bound.is_empty() => {
                    port.put_back(bound.remove(usize::from(which) % bound.len()));
                }
                Step::Publish(which) if !bound.is_empty() => {
                    let receive = bound.remove(usize::from(which) % bound.len());
                    // It asserts that there is room.
                    port.publish(&event(receive, 8));
                    posted.remove(&u64::from(receive.0));
                    published += 1;
                }
                Step::Read if !is_hostile => {
                    if let Some(line) = events.pop() {
                        prop_assert!(Event::from_line(&line).is_some());
                    }
                }
                Step::Head(head) => {
                    is_hostile = true;
                    rings.events().set_head(head);
                }
                Step::PutBack(_) | Step::Publish(_) | Step::Read => (),
            }
            prop_assert_eq!(port.assert_consistent(), bound.len());
            prop_assert!(is_hostile || port.watch().unread <= published);
        }
        prop_assert!(is_hostile || port.refused() <= refused + in_ring.len() as u64);
    }
}
