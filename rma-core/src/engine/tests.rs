use super::*;
use crate::{
    addr::{HostAddr, Pid},
    backend::{RxFrame, RxPacket, Transmit, TxFrame},
    command::{Command, CommandSlotId},
    command::{CommandOp, Transfer},
    crypto::DerivedRegionKey,
    grant::Grant,
    nic::{Nic, NicConfigBuilder, NicPlace, RegionEntry, TenantIndex},
    one_rma::{COMMANDS, OneRma, SENSELESS_COST},
    op::{ClassOfService, OpStatus, OpType},
    port::{Port, SourcePort},
    portal::{Bell, CommandPortal, PortalConfig, PortalMemory, ReadOp, Wake, portal},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    wire::FrameView,
};
use core::{
    cell::Cell,
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};
use std::sync::Arc;

use rma_shm::Doorbell;

mod bursts;
mod events;
mod hostile_process;
mod packets;
mod refusals;
mod watched_portals;

const PID: Pid = Pid(5);
/// Command slots of each portal: more than are taken from one portal in one turn.
const SLOTS: u16 = 48;

/// A device whose frames all get lost; it keeps the slots of the requests.
#[derive(Default)]
struct Lost(Vec<u16>);

impl Backend for Lost {
    fn rx_burst(&mut self, _: usize, _: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        0
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let mut out = [0; crate::wire::FRAME_LEN_MAX];
        let mut sent = 0;
        while sent < max {
            let mut frames = [TxFrame::new(&mut out)];
            if fill(&mut frames) == 0 {
                break;
            }
            let [TxFrame { bytes, transmit }] = &frames;
            let len = transmit.map_or(0, |transmit| transmit.len);
            if let Ok(FrameView::ReadRequest(request)) = FrameView::parse(&bytes[..len]) {
                self.0.push(request.claims().header.slot.0);
            }
            sent += 1;
        }
        sent
    }

    fn flush(&mut self, _: Instant) {}
}

#[derive(Default)]
struct HandClock(Cell<Instant>);

impl Clock for HandClock {
    fn now(&self) -> Instant {
        self.0.get()
    }
}

fn local() -> HostAddr {
    "192.0.2.1".parse().unwrap()
}

/// An engine with `count` portals, and where their data would land.
fn engine(count: u16) -> (Engine<Lost, HandClock>, Vec<CommandPortal>, RegisteredRegion) {
    let addresses = local().into();
    let config = NicConfigBuilder { pending_writes: 32, ..NicConfigBuilder::default() };
    let mut nic = Nic::new(config.build(NicPlace::at(local())).unwrap());
    let memory = Arc::new(rma_shm::Region::new(64).unwrap());
    let key = crate::crypto::RegionKey::from_bytes([1; 16]);
    let entry = RegionEntry::new(memory.clone(), &key, Permissions::NONE, PID);
    let sink = RegisteredRegion::new(
        nic.regions_mut().register(Box::new(entry)).unwrap(),
        memory,
        NicTag(1),
    );
    let mut engine = Engine::new(OneRma::new(nic), Lost::default(), HandClock::default());
    let portals = (0..count)
        .map(|number| {
            let slots = number * SLOTS..(number + 1) * SLOTS;
            engine.service_mut().nic_mut().configure_slots(slots.clone(), Some(PID));
            let (portal, port) = portal(PortalConfig {
                slots,
                pid: PID,
                addresses,
                bell: None,
                flag: None,
                nic: NicTag(1),
            });
            engine.service_mut().attach(port);
            portal
        })
        .collect();
    (engine, portals, sink)
}

fn read(portal: &mut CommandPortal, sink: &RegisteredRegion) {
    read_as(ClassOfService::Latency, portal, sink);
}

fn read_as(class: ClassOfService, portal: &mut CommandPortal, sink: &RegisteredRegion) {
    let grant = Grant {
        responder: "192.0.2.2".parse().unwrap(),
        region: RegionId::from_bits(0),
        region_len: 64,
        initiator: local(),
        pid: PID,
        op_type: OpType::Read,
        key: DerivedRegionKey::from_bytes([2; 16]),
    };
    let op = ReadOp { grant: &grant, remote_offset: 0, sink, sink_offset: 0, op_size: 64, class };
    portal.issue_read(&op).unwrap();
}

fn pass<B: Backend>(engine: &Engine<B, HandClock>, time: Duration) {
    engine.clock.0.set(engine.clock.now() + time);
}

#[test]
fn completions_go_to_their_portals_after_any_other_was_detached() {
    for gone in 0..4 {
        let (mut engine, mut portals, sink) = engine(4);
        let slots = portals.remove(gone).slots().clone();
        assert_eq!(engine.service_mut().detach(&slots).unwrap().slots(), &slots);
        assert!(engine.service_mut().detach(&slots).is_none(), "it is gone");
        for portal in &mut portals {
            read(portal, &sink);
        }
        engine.turn();
        pass(&engine, Duration::from_secs(1));
        engine.turn();
        for portal in &mut portals {
            let completion = portal.poll().unwrap();
            assert_eq!(completion.status, OpStatus::Timeout);
            assert!(portal.slots().contains(&completion.slot.0));
            assert!(portal.poll().is_none());
        }
        // Its slots can be another portal's.
        engine.service_mut().nic_mut().configure_slots(slots.clone(), Some(PID));
        let config = PortalConfig {
            slots,
            pid: PID,
            addresses: local().into(),
            bell: None,
            flag: None,
            nic: NicTag(1),
        };
        let (mut again, port) = portal(config);
        engine.service_mut().attach(port);
        read(&mut again, &sink);
        engine.turn();
        pass(&engine, Duration::from_secs(1));
        engine.turn();
        assert!(again.poll().is_some());
    }
}

#[test]
fn a_portal_that_was_dropped_is_detached_once_its_last_op_has_completed() {
    let (mut engine, mut portals, sink) = engine(1);
    read(&mut portals[0], &sink);
    engine.turn();
    drop(portals);
    assert!(engine.service_mut().detach(&(0..SLOTS)).is_none(), "an op is under way");
    assert!(!engine.service().nic().are_free(0..SLOTS));
    pass(&engine, Duration::from_secs(1));
    engine.turn();
    assert!(engine.service_mut().detach(&(0..SLOTS)).is_some());
    assert!(engine.service().nic().are_free(0..SLOTS));
    assert_eq!(engine.service().nic().window_debited(), 0);
}

#[test]
fn frames_of_a_host_to_itself_reach_it_past_no_device() {
    // All frames that the device is given get lost.
    let (mut engine, mut portals, local) = engine(1);
    let memory = Arc::new(rma_shm::Region::new(3 * 4096).unwrap());
    let key = crate::crypto::RegionKey::from_bytes([7; 16]);
    let all = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
    let entry = RegionEntry::new(memory.clone(), &key, all, PID);
    let region = engine.service_mut().nic_mut().regions_mut().register(Box::new(entry)).unwrap();
    let grant = |op_type| {
        let grant = Grant {
            responder: self::local(),
            region,
            region_len: 3 * 4096,
            initiator: self::local(),
            pid: PID,
            op_type,
            key: DerivedRegionKey::from_bytes([0; 16]),
        };
        grant.under(&key)
    };
    let own = RegisteredRegion::new(region, memory, NicTag(1));
    own.write(0, &[9; 4096]).unwrap();
    // More at once than the loopback holds.
    let count = usize::from(SLOTS) - 1;
    for _ in 0..count {
        portals[0].write(&grant(OpType::Write), 4096, &own, 0, 4096).unwrap();
    }
    portals[0].read(&grant(OpType::Read), 0, &local, 0, 64).unwrap();
    let (mut ok, mut nacks) = (0, 0);
    for _ in 0..2000 {
        engine.turn();
        while let Some(completion) = portals[0].poll() {
            match completion.status {
                OpStatus::Ok => ok += 1,
                OpStatus::Nack => nacks += 1,
                other => panic!("{other}"),
            }
        }
    }
    // One class may have 24 of the 32 entries of the pending-write table; the read is none of them.
    assert_eq!((ok + nacks, ok), (count + 1, 25));
    let mut bytes = [0; 4096];
    own.read(4096, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 4096]);
    assert!(engine.is_idle());
}

fn command(slot: u16, sink: &RegisteredRegion) -> Command {
    Command {
        slot: CommandSlotId(slot),
        responder: "192.0.2.2".parse().unwrap(),
        op: CommandOp::Read(Transfer {
            op_size: 1,
            remote_offset: 0,
            local_region: sink.id(),
            local_offset: 0,
        }),
        ..Command::NONE
    }
}

#[test]
fn a_portal_cannot_use_the_slots_of_another_and_owes_nothing_for_having_tried() {
    let (mut engine, mut portals, sink) = engine(2);
    for slot in [SLOTS, 2 * SLOTS, u16::MAX] {
        portals[0].issue(&command(slot, &sink));
    }
    engine.turn();
    assert_eq!(engine.service().nic().counters().commands_refused(), 3);
    assert!(engine.service().nic().are_free(0..2 * SLOTS));
    assert!(engine.service_mut().detach(&(0..SLOTS)).is_some());
}

#[test]
fn a_slot_issued_twice_completes_once_and_its_portal_still_settles() {
    let (mut engine, mut portals, sink) = engine(1);
    portals[0].issue(&command(0, &sink));
    portals[0].issue(&command(0, &sink));
    engine.turn();
    assert_eq!(engine.service().nic().counters().commands_refused(), 1);
    assert!(engine.service_mut().detach(&(0..SLOTS)).is_none(), "the first op is under way");
    pass(&engine, Duration::from_secs(1));
    engine.turn();
    let port = engine.service_mut().detach(&(0..SLOTS)).unwrap();
    assert_eq!(engine.service().nic().counters().completions(OpStatus::Timeout), 1);
    assert!(port.is_settled() && engine.service().nic().are_free(0..SLOTS));
}

#[test]
fn a_turn_takes_some_commands_of_every_portal_and_the_next_turn_the_rest() {
    let (mut engine, mut portals, sink) = engine(2);
    for portal in &mut portals {
        (0..SLOTS).for_each(|_| read(portal, &sink));
    }
    let in_use = |engine: &Engine<Lost, HandClock>, slots: Range<u16>| {
        slots.filter(|&slot| !engine.service().nic().are_free(slot..slot + 1)).count()
    };
    engine.turn();
    assert_eq!(in_use(&engine, 0..SLOTS), COMMANDS.portal);
    assert_eq!(in_use(&engine, SLOTS..2 * SLOTS), COMMANDS.portal);
    assert!(!engine.is_idle());
    engine.turn();
    assert_eq!(in_use(&engine, 0..2 * SLOTS), 2 * usize::from(SLOTS));
    assert!(engine.is_idle());
}

#[test]
fn a_turn_takes_so_many_commands_of_all_portals_and_who_was_cut_off_is_first_in_the_next() {
    const PORTALS: u16 = 20;
    let (mut engine, mut portals, sink) = engine(PORTALS);
    for portal in &mut portals {
        (0..SLOTS).for_each(|_| read(portal, &sink));
    }
    for turn in 1..=5 {
        engine.turn();
        let taken: Vec<_> = (0..PORTALS)
            .map(|portal| {
                let mut slots = portal * SLOTS..(portal + 1) * SLOTS;
                let is_free = |slot: u16| engine.service().nic().are_free(slot..slot + 1);
                slots.by_ref().filter(|&slot| !is_free(slot)).count()
            })
            .collect();
        assert_eq!(taken.iter().sum::<usize>(), turn * COMMANDS.all);
        let [least, most] = [taken.iter().min().unwrap(), taken.iter().max().unwrap()];
        assert!(most - least <= 1, "{taken:?}");
    }
}

#[test]
fn a_turn_takes_few_commands_that_make_no_sense_and_ops_of_another_tenant_all_the_same() {
    const PORTALS: u16 = 20;
    let (mut engine, mut portals, sink) = engine(PORTALS);
    let honest = portals.last().unwrap().slots().clone();
    let port = engine.service_mut().detach(&honest).unwrap();
    let nic = engine.service_mut().nic_mut();
    nic.configure_slots_of(honest.clone(), Some(PID), TenantIndex::of(1));
    engine.service_mut().attach(port);
    let (neighbour, bad) = portals.split_last_mut().unwrap();
    for portal in bad {
        for slot in portal.slots().clone() {
            let Command { op: CommandOp::Read(transfer), .. } = command(slot, &sink) else {
                unreachable!("it is a read")
            };
            let op = CommandOp::Read(Transfer { local_offset: u64::MAX, ..transfer });
            portal.issue(&Command { op, ..command(slot, &sink) });
        }
    }
    honest.clone().for_each(|_| read(neighbour, &sink));
    engine.turn();
    let completed = engine.service().nic().counters().completions(OpStatus::InvalidCommand);
    assert_eq!(completed, (COMMANDS.all / 2 / SENSELESS_COST) as u64);
    let taken = honest.filter(|&slot| !engine.service().nic().are_free(slot..slot + 1)).count();
    assert_eq!(taken, COMMANDS.portal);
}

/// The portals whose requests have been sent since the last call, in that order.
fn sent(engine: &mut Engine<Lost, HandClock>) -> Vec<u16> {
    core::mem::take(&mut engine.backend_mut().0).into_iter().map(|slot| slot / SLOTS).collect()
}

#[test]
fn portals_take_turns_command_by_command_and_each_is_first_once() {
    let (mut engine, mut portals, sink) = engine(3);
    for first in [0, 1, 2, 0] {
        for portal in &mut portals {
            (0..4).for_each(|_| read(portal, &sink));
        }
        engine.turn();
        let turns: Vec<_> = (first..first + 12).map(|index| index % 3).collect();
        assert_eq!(sent(&mut engine), turns);
        // Turns without commands do not count.
        (0..first + 2).for_each(|_| assert_eq!(engine.turn(), 0));
    }
}

#[test]
fn one_command_waits_for_at_most_one_of_each_other_portal() {
    let (mut engine, mut portals, sink) = engine(4);
    for lone in 0..4 {
        for (index, portal) in portals.iter_mut().enumerate() {
            let commands = if index == lone { 1 } else { 12 };
            (0..commands).for_each(|_| read(portal, &sink));
        }
        engine.turn();
        let sent = sent(&mut engine);
        let ahead = sent.iter().position(|&portal| usize::from(portal) == lone).unwrap();
        assert!(ahead <= 3, "{sent:?}");
        assert_eq!(sent.len(), 37);
    }
}

#[test]
fn turns_go_on_when_portals_come_and_go() {
    let (mut engine, mut portals, sink) = engine(3);
    for portal in &mut portals {
        read(portal, &sink);
    }
    engine.turn();
    read(&mut portals[2], &sink);
    // The next first one would be the fourth of three, and then of two.
    engine.turn();
    assert_eq!(sent(&mut engine), [0, 1, 2, 2]);
    pass(&engine, Duration::from_secs(1));
    engine.turn();
    assert!(engine.service_mut().detach(portals.remove(0).slots()).is_some());
    for portal in &mut portals {
        read(portal, &sink);
    }
    engine.turn();
    // The last one has the place of the first.
    assert_eq!(sent(&mut engine), [2, 1]);
}

/// Counts how often it is rung.
#[derive(Debug, Default)]
struct Rung(AtomicUsize);

impl Wake for Rung {
    fn wake(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_thread_that_sleeps_is_woken_once_for_the_completions_of_a_turn_and_when_its_engine_ends() {
    let (mut engine, _, sink) = engine(0);
    let addresses = local().into();
    let config =
        PortalConfig { slots: 0..8, pid: PID, addresses, bell: None, flag: None, nic: NicTag(1) };
    engine.service_mut().nic_mut().configure_slots(0..8, Some(PID));
    let (mut portal, mut port) = portal(config);
    let (rung, bell) = {
        let rung = Arc::new(Rung::default());
        (rung.clone(), Bell { doorbell: Doorbell::new(), wake: rung })
    };
    port.set_sleeper(bell.clone());
    engine.service_mut().attach(port);
    let mut complete = |count| {
        (0..count).for_each(|_| read(&mut portal, &sink));
        engine.turn();
        assert!(!portal.has_completion());
        pass(&engine, Duration::from_secs(1));
        engine.turn();
        assert!(portal.has_completion());
        assert_eq!(core::iter::from_fn(|| portal.poll()).count(), count);
        engine.turn();
        rung.0.load(Relaxed)
    };
    assert_eq!(complete(3), 0, "nobody sleeps");
    bell.doorbell.prepare_sleep();
    assert_eq!(complete(8), 1);
    assert_eq!(complete(1), 2, "who was woken may not have run yet");
    bell.doorbell.awake();
    assert_eq!(complete(8), 2);
    drop(engine);
    assert_eq!(rung.0.load(Relaxed), 3);
}
