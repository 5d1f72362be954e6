//! Events of receive queues wake the application whose portal the queue is bound to, and nobody
//! else.

use super::*;
use crate::{
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    receive_queue::{ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
};

/// A receive queue at the engine's host, bound to the portal that has `slot`; and a grant to notify
/// it.
fn queue(
    engine: &mut Engine<Lost, HandClock>,
    slot: Option<CommandSlotId>,
) -> (ReceiveQueue, Grant) {
    let layout = ReceiveQueueLayout::new(8, 0).unwrap();
    let memory = Arc::new(rma_shm::Region::new(layout.memory_len()).unwrap());
    let key = RegionKey::from_bytes([2; 16]);
    let rings = ReceiveQueueMemory::heap(layout);
    let port = rings.clone().into_port(slot);
    let entry = RegionEntry::receive_queue(port, memory.clone(), &key, Permissions::NOTIFY, PID);
    let nic = engine.service_mut().nic_mut();
    let region = nic.regions_mut().register(Box::new(entry)).unwrap();
    let op_type = OpType::Notify;
    let binding = KeyBinding { initiator: local(), responder: local(), pid: PID, op_type };
    let grant = Grant {
        responder: local(),
        region,
        region_len: 0,
        initiator: local(),
        pid: PID,
        op_type,
        key: RegionKeySchedule::new(&key).derive(&binding),
    };
    let mut queue = rings.into_application(RegisteredRegion::new(region, memory, NicTag(1)));
    queue.post_all();
    (queue, grant)
}

/// Turns until nothing moves any longer. Returns in how many turns the bell was rung, and how often
/// at most in one of them.
fn settle(engine: &mut Engine<Lost, HandClock>, rung: &Rung) -> (usize, usize) {
    let (mut turns, mut most) = (0, 0);
    for _ in 0..20 {
        let before = rung.0.load(Relaxed);
        engine.turn();
        let times = rung.0.load(Relaxed) - before;
        turns += usize::from(times > 0);
        most = most.max(times);
    }
    (turns, most)
}

#[test]
fn events_wake_the_thread_of_the_portal_that_their_queue_is_bound_to_once_a_turn() {
    let (mut engine, mut senders, _) = engine(1);
    let sender = &mut senders[0];
    let slots = SLOTS..SLOTS + 4;
    let slot = CommandSlotId(slots.end - 1);
    let config = PortalConfig {
        slots: slots.clone(),
        pid: PID,
        addresses: local().into(),
        bell: None,
        flag: None,
        nic: NicTag(1),
    };
    engine.service_mut().nic_mut().configure_slots(slots, Some(PID));
    let (_receiver, mut port) = portal(config);
    let rung = Arc::new(Rung::default());
    let bell = Bell { doorbell: Doorbell::new(), wake: rung.clone() };
    port.set_sleeper(bell.clone());
    engine.service_mut().attach(port);
    let (mut one, to_one) = queue(&mut engine, Some(slot));
    let (mut other, to_other) = queue(&mut engine, Some(slot));
    let (mut unbound, to_unbound) = queue(&mut engine, None);

    let mut notify = |engine: &mut Engine<Lost, HandClock>, grants: &[&Grant]| {
        for grant in grants {
            sender.notify(grant, 7).unwrap();
        }
        let rings = settle(engine, &rung);
        let ends = core::iter::from_fn(|| sender.poll()).map(|it| it.status);
        assert_eq!(ends.collect::<Vec<_>>(), vec![OpStatus::Ok; grants.len()]);
        rings
    };
    assert_eq!(notify(&mut engine, &[&to_one]), (0, 0), "nobody sleeps");
    assert!(one.has_event() && one.poll().is_some());
    bell.doorbell.prepare_sleep();
    assert_eq!(notify(&mut engine, &[&to_one]), (1, 1));
    assert_eq!(notify(&mut engine, &[&to_one, &to_other, &to_one, &to_one]), (1, 1));
    assert_eq!(notify(&mut engine, &[&to_unbound]), (0, 0));
    let events = [&mut one, &mut other, &mut unbound];
    let events = events.map(|queue| core::iter::from_fn(|| queue.poll()).count());
    assert_eq!(events, [4, 1, 1]);
    // A queue that is gone rings for nobody, and takes no other's place.
    engine.service_mut().nic_mut().deregister(other.id()).unwrap();
    assert_eq!(notify(&mut engine, &[&to_one]), (1, 1));
}
